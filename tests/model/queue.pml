/* OperationQueue between REQUESTERS and the VM thread, and OperationRequest,
   which lives on the requester's stack.
   Code: safepoint/operation_queue, safepoint/vm_thread, thread/wait_word.

   Requester 0 executes two operations, one after the other, on the same
   WaitWord, so that the late event of the first reaches the second; the others
   one. The closer
   is Shutdown: RefuseRequests, Close; or it never comes. Before each stop the VM thread may sleep
   for min_mutator_time (SleepUntil). Memory is SC here: what is stored without
   a read-modify-write (closed_, result) is followed by one.

   Shown: each request that Push accepts is completed, and what is refused is
   told so; nobody is left asleep, and the VM thread ends; no request is touched
   after its result is written.

   Broken twins:
     -DSIGNAL_READ_LATE     TakeBatch reads signal_ after its look at the queue
     -DSLEEPS_READ_EARLY    Push reads vm_thread_sleeps_ before it signals
     -DNO_SIGNAL            Push only wakes
     -DCLOSED_FIRST         Close sets closed_ before requests are refused
     -DCLOSED_READ_LATE     TakeBatch looks at closed_ after it gave up lock_
     -DCLOSE_UNSIGNALLED    Close only wakes
     -DTOUCH_AFTER_RESULT   Complete reads request.waiter after the result
     -DSET_BEFORE_RESULT    Complete wakes, then writes the result
     -DEVENT_IS_RESULT      Await returns at the first event */
#define REQUESTERS 2
#define WORDS REQUESTERS
#define WORD_IN_USE(w) true /* in the slot, or shared */
#include "wait_word_ops.pml"

#define PENDING 0
#define DONE 1
bool frame[REQUESTERS]; /* the request exists */
byte result[REQUESTERS];

bool lock_;
chan queued = [REQUESTERS] of { byte };
bool refusing_;
bool closed_;
byte signal_;
bool vm_thread_sleeps_;
bool vm_waiting; /* the VM thread sleeps on signal_ */
bool lives_on;   /* ghost: nobody will close the queue */
byte through;    /* ghost: requesters that want nothing more */

inline Lock() { atomic { !lock_ -> lock_ = true } }
inline Unlock() { lock_ = false }

inline FutexWait(value, may_time_out) {
  vm_waiting = (signal_ == value);
  if
  :: !vm_waiting
  :: may_time_out -> vm_waiting = false
  :: !may_time_out && lives_on && through == REQUESTERS
  fi
}

proctype requester(byte me) {
  byte n, seen, bits, res;
  bool sleeps, pushed;
  do
  :: n < 1 + (me == 0) ->
     atomic { frame[me] = true; result[me] = PENDING };
     /* Push */
     Lock();
     if
     :: refusing_ -> Unlock(); frame[me] = false; break
     :: else -> queued!me; Unlock()
     fi;
#ifdef SLEEPS_READ_EARLY
     sleeps = vm_thread_sleeps_;
#endif
#ifndef NO_SIGNAL
     signal_++;
#endif
#ifndef SLEEPS_READ_EARLY
     sleeps = vm_thread_sleeps_;
#endif
     if :: sleeps -> vm_waiting = false :: else fi;
     sleeps = false;
     /* Await */
     do
     :: result[me] != PENDING -> break
     :: else ->
        Wait(me, EVENT, false);
        Take(me, EVENT, res);
#ifdef EVENT_IS_RESULT
        break
#endif
     od;
     atomic {
       assert(result[me] == DONE);
       bits = 0;
       res = 0;
       frame[me] = false;
       n++
     }
  :: else -> break
  od;
  through++
}

proctype vm_thread() {
  byte signal, request, waiter, before;
  do
  :: /* TakeBatch, one request at a time */
#ifndef SIGNAL_READ_LATE
     signal = signal_;
#endif
     Lock();
     if
     :: nempty(queued) -> queued?request; Unlock()
     :: empty(queued) ->
#ifdef CLOSED_READ_LATE
        Unlock();
        if :: closed_ -> break :: else fi;
#else
        if :: closed_ -> Unlock(); break :: else fi;
        Unlock();
#endif
#ifdef SIGNAL_READ_LATE
        signal = signal_;
#endif
        vm_thread_sleeps_ = true;
        FutexWait(signal, false);
        if
        :: vm_waiting -> break /* idle for good, see FutexWait */
        :: else -> vm_thread_sleeps_ = false
        fi;
        goto next
     fi;
     if
     :: true /* SleepUntil: until the deadline, or closed_ */
     :: true ->
        do
        :: signal = signal_;
           if :: closed_ -> break :: else fi;
           FutexWait(signal, true)
        :: break /* passed */
        od
     fi;
     /* the stop; Complete */
     atomic { assert(frame[request]); waiter = request };
#ifdef SET_BEFORE_RESULT
     Set(waiter, EVENT, before);
#endif
     atomic { assert(frame[request]); result[request] = DONE };
#ifdef TOUCH_AFTER_RESULT
     assert(frame[request]);
#endif
#ifndef SET_BEFORE_RESULT
     Set(waiter, EVENT, before);
#endif
next:
     signal = 0
  od;
  assert(empty(queued))
}

proctype closer() {
  if
  :: true -> lives_on = true; goto over
  :: true
  fi;
#ifdef CLOSED_FIRST
  closed_ = true;
  Lock(); refusing_ = true; Unlock();
#else
  Lock(); refusing_ = true; Unlock();
  closed_ = true;
#endif
#ifndef CLOSE_UNSIGNALLED
  signal_++;
#endif
  vm_waiting = false;
over:
  skip
}

init {
  atomic {
    run requester(0);
    run requester(1);
    run vm_thread();
    run closer()
  }
}
