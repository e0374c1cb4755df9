/* Join: the list of joiners, whose nodes (and, of an unattached joiner, the
   WaitWord) live on the joiners' stacks, against the exiting thread's Retire.
   Code: thread/thread_handle (Join), thread/registry (Retire), thread/wait_word.

   Joiner 0 is unattached: its word is in its frame. Joiner 1 is attached: its
   word outlives the frame and also gets interrupts and late events of earlier
   waits. Each joins until it is told that the thread has ended, with or without
   a deadline.

   Shown: no frame is touched after its Join returned; Join says "ended" only
   after the end; no joiner is left asleep.

   Broken twins:
     -DSET_OUTSIDE_LOCK    Retire sets the event after it gave up join_lock
     -DNO_WAKE             Retire does not wake the last joiner
     -DDONE_BEFORE_EVENT   Retire marks the joiner before it sets the event
     -DEVENT_IS_ENOUGH     a joiner that finds the event and is not done yet
                           goes away without join_lock
     -DCHECK_BEFORE_LOCK   alive() is looked at only before join_lock is taken
     -DEVENT_IS_END        any event counts as the end
     -DSTAY_IN_LIST        who gives up does not leave the list
     -DNO_EVENT            Retire marks the joiner without waking it */
#define JOINERS 2
#define WORDS JOINERS
#define NONE JOINERS
bool frame[JOINERS]; /* the stack frame of Join exists */
#define WORD_IN_USE(w) ((w) == 1 || frame[w])
#include "wait_word_ops.pml"

bool alive = true; /* the generation is still the handle's */
bool join_lock;
bool listed[JOINERS];
bool done[JOINERS];

inline Lock() { atomic { !join_lock -> join_lock = true } }
inline Unlock() { join_lock = false }

/* WaitWord::SetQuietly, and FutexWakeRaw: which takes an address, whatever is
   there by then. */
inline SetQuietly(j) {
#ifdef NO_EVENT
  skip
#else
  atomic {
    assert(WORD_IN_USE(j));
    asleep = ((word[j] & SLEEPING) && !(word[j] & EVENT) -> j : NONE);
    word[j] = word[j] | EVENT
  }
#endif
}
inline WakeAsleep() {
  if
  :: asleep != NONE -> atomic { word_waited[asleep] = false; asleep = NONE }
  :: else
  fi
}

inline Pop(j) {
  atomic { assert(frame[j]); listed[j] = false };
  WakeAsleep();
#ifdef DONE_BEFORE_EVENT
  atomic { assert(frame[j]); done[j] = true };
#endif
#ifndef SET_OUTSIDE_LOCK
  SetQuietly(j);
#endif
  /* The last touch of the frame. */
#ifndef DONE_BEFORE_EVENT
  atomic { assert(frame[j]); done[j] = true };
#endif
  marked[j] = true
}

/* Registry::Retire of the thread that is joined. */
proctype exiting() {
  byte asleep = NONE;
  bool marked[JOINERS];
  Lock();
  alive = false;
  do
  :: listed[0] -> Pop(0)
  :: !listed[0] && listed[1] -> Pop(1)
  :: !listed[0] && !listed[1] -> break
  od;
  Unlock();
#ifdef SET_OUTSIDE_LOCK
  if :: marked[0] -> SetQuietly(0); WakeAsleep() :: else fi;
  if :: marked[1] -> SetQuietly(1) :: else fi;
#endif
#ifndef NO_WAKE
  WakeAsleep()
#endif
}

/* ThreadHandle::Join */
proctype joiner(byte me) {
  byte seen, bits, res;
  bool ended, may_time_out;
  do
  :: !ended ->
     if
     :: !alive -> break
     :: else
     fi;
     atomic {
       frame[me] = true;
       done[me] = false;
       if :: me == 0 -> word[0] = 0 :: else fi
     };
     if :: may_time_out = true :: may_time_out = false fi;
     Lock();
#ifndef CHECK_BEFORE_LOCK
     if
     :: !alive -> ended = true; Unlock(); goto leave
     :: else
     fi;
#endif
     listed[me] = true;
     Unlock();
     do
     :: Wait(me, EVENT | INTERRUPT, may_time_out);
#ifdef EVENT_IS_END
        if :: bits & EVENT -> done[me] = true :: else fi;
#endif
        Take(me, EVENT, res);
        if :: done[me] -> ended = true; break :: else fi;
#ifdef EVENT_IS_ENOUGH
        if :: bits & EVENT -> break :: else fi;
#endif
        Lock();
        if
        :: done[me] -> ended = true; Unlock(); break
        :: !done[me] && bits == EVENT -> Unlock()
        :: else ->
#ifndef STAY_IN_LIST
           assert(listed[me]);
           listed[me] = false;
#endif
           Unlock();
           if
           :: bits & INTERRUPT -> Take(me, INTERRUPT, res)
           :: else
           fi;
           break
        fi
     od;
leave:
     atomic {
       bits = 0;
       res = 0;
       may_time_out = false;
       frame[me] = false;
       assert(!ended || !alive)
     }
  :: else -> break
  od
}

/* What else reaches the word of an attached joiner: the event of an operation
   that it no longer waits for, and an interrupt. */
proctype stray() {
  byte before;
  Set(1, EVENT, before);
  Set(1, INTERRUPT, before)
}

init {
  atomic { run exiting(); run joiner(0); run joiner(1); run stray() }
}
