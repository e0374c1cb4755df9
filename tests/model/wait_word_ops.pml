/* WaitWord (thread/wait_word), for the models that wait on one; not run alone.
   All its writers use read-modify-writes, so memory is SC here.

   A model defines WORDS (how many words) and WORD_IN_USE(w), which is asserted
   at each touch by others; ids of words are small integers. The owner of a word
   calls Wait and Take, in which `seen`, `bits` are locals of the process. */
#define PERMIT 1
#define INTERRUPT 2
#define EVENT 4
#define SLEEPING 8

byte word[WORDS];
bool word_waited[WORDS]; /* its owner sleeps on the futex */

/* Any thread. before: a local. */
inline Set(w, what, before) {
#ifdef SET_PLAIN
  before = word[w];
  word[w] = before | what;
#else
  atomic {
    assert(WORD_IN_USE(w));
    before = word[w];
    word[w] = before | (what)
  };
#endif
  if
  :: (before & SLEEPING) && (before & (what)) != (what) ->
     atomic { assert(WORD_IN_USE(w)); before = 0; word_waited[w] = false }
  :: else -> before = 0
  fi
}

/* Owner. bits: those of mask that are set, 0 at the deadline. The wait may time
   out at any moment if may_time_out. */
inline Wait(w, mask, may_time_out) {
  bits = 0;
  seen = 0;
  do
  :: atomic { bits = word[w] & (mask); if :: bits -> break :: else fi };
     atomic { word[w] = word[w] | SLEEPING; seen = word[w] };
     if
#ifndef SLEEP_UNSEEN
     :: seen & (mask) -> seen = 0
#endif
     :: atomic {
          else ->
#ifdef SLEEP_ON_ANY
          word_waited[w] = true
#else
          word_waited[w] = (word[w] == seen)
#endif
        };
        if
        :: !word_waited[w] -> seen = 0
        :: may_time_out -> word_waited[w] = false; seen = 1 /* timed out */
        fi
     fi;
     atomic {
       word[w] = word[w] & ~SLEEPING;
       bits = word[w] & (mask);
       if :: bits || seen == 1 -> seen = 0; break :: else fi
     }
  od
}

/* Owner. Clears what; res: those of it that were set. */
inline Take(w, what, res) {
#ifdef TAKE_ALL
  atomic { res = word[w] & (what); word[w] = 0 }
#else
#ifdef TAKE_PLAIN
  res = word[w];
  atomic { word[w] = res & ~(what); res = res & (what) }
#else
  atomic { res = word[w] & (what); word[w] = word[w] & ~(what) }
#endif
#endif
}
