/* SlotTable's free list: PopFree and PushFree of THREADS threads on SLOTS
   slots. Memory is SC: the one plain store, of the link, is followed by the
   exchange that publishes it.
   Code: thread/slot_table.

   Shown: no slot is given out twice; none is lost.

   Broken twin:
     -DNO_TAG   the head carries no tag: another thread pops two slots and gives
                the first back between PopFree's two readings and its exchange */
#ifndef SLOTS
#define SLOTS 3
#endif
#ifndef THREADS
#define THREADS 2
#endif
#ifndef TURNS
#define TURNS 3
#endif

byte first = 1; /* low half of free_head_: index + 1 */
byte tag;       /* high half */
byte next_free[SLOTS];
bool used[SLOTS]; /* ghost */
byte through;     /* ghost */

/* slot: index + 1, 0 if there is none */
inline PopFree(slot) {
  do
  :: atomic { slot = first; seen = tag };
     if :: slot == 0 -> break :: else fi;
     next = next_free[slot - 1];
     atomic {
       if
#ifdef NO_TAG
       :: first == slot ->
#else
       :: first == slot && tag == seen ->
#endif
          first = next;
          tag++;
          assert(!used[slot - 1]);
          used[slot - 1] = true;
          break
       :: else
       fi
     }
  od;
  next = 0;
  seen = 0
}
inline PushFree(slot) {
  atomic { used[slot - 1] = false; next = first; seen = tag };
  do
  :: next_free[slot - 1] = next;
     atomic {
       if
       :: first == next && tag == seen -> first = slot; break
       :: else -> next = first; seen = tag
       fi
     }
  od;
  slot = 0;
  next = 0;
  seen = 0
}

/* Holds up to two slots. */
proctype thread() {
  byte a, b, n, next, seen;
  do
  :: n < TURNS && a == 0 -> n++; PopFree(a)
  :: n < TURNS && b == 0 -> n++; PopFree(b)
  :: a != 0 -> PushFree(a)
  :: b != 0 -> PushFree(b)
  :: n == TURNS && a == 0 && b == 0 -> break
  od;
  through++
}

init {
  byte i;
  atomic {
    do
    :: i < SLOTS -> next_free[i] = (i + 1 < SLOTS -> i + 2 : 0); i++
    :: else -> i = 0; break
    od;
    do :: i < THREADS -> run thread(); i++ :: else -> i = 0; break od
  };
  through == THREADS;
  /* all slots are in the list */
  atomic {
    do :: first -> first = next_free[first - 1]; i++ :: else -> break od;
    assert(i == SLOTS)
  }
}
