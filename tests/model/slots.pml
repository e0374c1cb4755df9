/* SlotTable: one slot, its generations, its pins and the retire bit; PINNERS
   readers, each with a handle to any generation. Memory is SC: all writes are
   read-modify-writes.
   Code: thread/slot_table (Claim, Release, Pin, Unpin), thread/registry.

   Shown: each retirement puts the slot into the free list exactly once, and not
   while a reader holds a valid pin; so a valid pin sees one thread only.

   Broken twins:
     -DPIN_LOOKS_FIRST      Pin compares the generation, then counts itself
     -DPIN_UNCHECKED        Pin does not compare
     -DRELEASE_UNCHECKED    Release frees a slot that had no pins without the
                            exchange that a new pin makes fail
     -DUNPIN_UNCHECKED      the same in Unpin
     -DUNPIN_LEAVES_IT      Unpin never frees
     -DGENERATION_LATE      the generation advances after Release
     -DRELEASE_IGNORES_PINS Release frees whatever the pins */
#ifndef PINNERS
#define PINNERS 2
#endif
#ifndef LIVES
#define LIVES 3
#endif
#define RETIRED 128

byte generation; /* odd: a thread lives in the slot */
byte pins;
bool free = true; /* in the free list */
byte valid;       /* ghost: pins that were found valid and are held */
byte retired;     /* ghost: retirements */
byte pushed;      /* ghost: pushes */

inline PushFree() {
  atomic {
    assert(!free && valid == 0);
    free = true;
    pushed++;
    assert(pushed <= retired)
  }
}
/* compare_exchange_strong(kRetired -> 0), then PushFree */
inline FreeIfUnpinned() {
  atomic {
    if
    :: pins == RETIRED -> pins = 0; won = true
    :: else -> won = false
    fi
  };
  if :: won -> won = false; PushFree() :: else fi
}

inline Unpin() {
  atomic { before = pins; pins-- };
#ifndef UNPIN_LEAVES_IT
  if
  :: before == (RETIRED | 1) ->
#ifdef UNPIN_UNCHECKED
     pins = 0;
     PushFree()
#else
     FreeIfUnpinned()
#endif
  :: else
  fi
#endif
  before = 0
}

proctype pinner() {
  byte handle, n, before;
  bool won;
  do
  :: n < 2 -> /* two pins, each with a handle of its own */
     n++;
     if :: handle = 1 :: handle = 3 :: handle = 5 fi;
#ifdef PIN_LOOKS_FIRST
     if
     :: generation == handle -> pins++; valid++
     :: else -> goto next
     fi;
#else
     pins++;
#ifdef PIN_UNCHECKED
     valid++;
#else
     atomic {
       if :: generation == handle -> valid++; won = true :: else fi
     };
     if
     :: won -> won = false
     :: else -> Unpin(); goto next
     fi;
#endif
#endif
     /* reads the record: it stays the handle's */
#ifndef PIN_UNCHECKED
     assert(!free && (generation == handle || generation == handle + 1));
#endif
     valid--;
     Unpin();
next:
     handle = 0
  :: else -> break
  od
}

/* One thread after another: Claim, its life, Retire. */
proctype slot_user() {
  byte n, before;
  bool won;
  do
  :: n < LIVES ->
     n++;
     atomic { free -> free = false; assert(valid == 0) };
     generation++;
#ifndef GENERATION_LATE
     generation++;
#endif
     retired++;
     /* Release; RetireGreen's carrier keeps the slot in the first case. */
     if
     :: pins == 0 -> PushFree() /* IsUnpinned */
     :: else ->
     atomic { before = pins; pins = pins | RETIRED };
     if
#ifdef RELEASE_IGNORES_PINS
     :: true -> pins = pins & ~RETIRED; PushFree()
#else
     :: before != 0 -> before = 0
     :: else ->
#ifdef RELEASE_UNCHECKED
        pins = 0;
        PushFree()
#else
        FreeIfUnpinned()
#endif
#endif
     fi
     fi
#ifdef GENERATION_LATE
     ; generation++
#endif
  :: else -> break
  od;
  /* The last retirement frees it, too, sooner or later: else this hangs. */
  free;
  assert(pushed == retired)
}

init {
  byte i;
  atomic {
    run slot_user();
    do :: i < PINNERS -> run pinner(); i++ :: else -> break od
  }
}
