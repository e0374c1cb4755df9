/* WaitWord: one owner that waits for one bit after the other, with and without
   a deadline, and two threads that set bits.
   Code: thread/wait_word.

   Shown: the owner is not left asleep while a bit it waits for is set; no bit
   is lost to another's write or another's Take.

   Broken twins:
     -DSET_PLAIN      Set loads and stores
     -DTAKE_PLAIN     Take loads and stores
     -DTAKE_ALL       Take clears the whole word
     -DSLEEP_UNSEEN   Wait does not look at the word that its fetch_or returned
     -DSLEEP_ON_ANY   the kernel does not compare */
#ifndef ROUNDS
#define ROUNDS 3
#endif
#define WORDS 1
#define WORD_IN_USE(w) true
#include "wait_word_ops.pml"

byte given[2]; /* permits, events: set by their setter, taken by the owner */
bool owner_through;

/* Sets its bit when the owner has taken the one before. */
proctype setter(byte kind) {
  byte n, before;
  do
  :: n < ROUNDS ->
     given[kind] == 0;
     given[kind] = 1;
     if
     :: kind == 0 -> Set(0, PERMIT, before)
     :: else -> Set(0, EVENT, before)
     fi;
     if /* once more, which changes nothing */
     :: kind == 0 && n == 1 -> Set(0, INTERRUPT | PERMIT, before)
     :: true
     fi;
     n++
  :: else -> break
  od
}

proctype owner() {
  byte n, m, seen, bits, res;
  do
  :: n < ROUNDS ->
     Wait(0, EVENT, false);
     Take(0, EVENT, res);
     assert(res == EVENT && given[1] == 1);
     atomic { given[1] = 0; n++ }
  :: m < ROUNDS ->
     Wait(0, PERMIT, true);
     if
     :: bits ->
        Take(0, PERMIT, res);
        assert(res == PERMIT);
        atomic { if :: given[0] -> given[0] = 0; m++ :: else fi }
     :: else
     fi
  :: n == ROUNDS && m == ROUNDS -> break
  od;
  owner_through = true
}

init { atomic { run owner(); run setter(0); run setter(1) } }
