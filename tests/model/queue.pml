/* OperationQueue between REQUESTERS and the VM thread; Stopper_lock, by which a
   requester may run its own operation (TryRunHere); OperationRequest, which
   lives on the requester's stack, and the followers that coalesced with it.
   Code: safepoint/operation_queue, safepoint/vm_thread, thread/wait_word.

   Requester 0 executes two operations, one after the other, on the same
   WaitWord, so that the late event of the first reaches the second; the others
   one. The closer
   is Shutdown: RefuseRequests, Close; or it never comes. Before each stop the VM thread may sleep
   for min_mutator_time (SleepUntil). Memory is SC here: what is stored without
   a read-modify-write (closed_, result) is followed by one.

   Shown: each request that Push accepts is completed, and what is refused is
   told so; nobody is left asleep, and the VM thread ends; no request is touched
   after its result is written; nobody stops the world after CloseForEver.

   Broken twins:
     -DSIGNAL_READ_LATE     AwaitWork reads signal_ after its look at the queue
     -DSLEEPS_READ_EARLY    Push reads vm_thread_sleeps_ before it signals
     -DNO_SIGNAL            Push only wakes
     -DCLOSED_FIRST         Close sets closed_ before requests are refused
     -DCLOSED_READ_LATE     AwaitWork looks at closed_ after it gave up lock_
     -DCLOSE_UNSIGNALLED    Close only wakes
     -DOPEN_READ_EARLY      TryRunHere looks at the queue before Stopper_lock
     -DFOLLOWERS_LAST       Complete goes through the followers after the result
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
bool stopper_lock_;
bool closed_for_ever; /* ghost */
byte follower[REQUESTERS]; /* id + 1 of who coalesced with this request */
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

/* Whoever holds Stopper_lock: the stop for one request, and Complete. */
inline RunStop(request) {
  atomic { assert(frame[request] && !closed_for_ever) };
#ifndef FOLLOWERS_LAST
  CompleteFollower(request);
#endif
  CompleteOne(request);
#ifdef FOLLOWERS_LAST
  CompleteFollower(request);
#endif
}
inline CompleteFollower(request) {
  atomic { assert(frame[request]); next = follower[request] };
  if
  :: next ->
     atomic { next--; follower[request] = 0 };
     CompleteOne(next);
     next = 0
  :: else
  fi
}
inline CompleteOne(r) {
#ifdef SET_BEFORE_RESULT
  Set(r, EVENT, before);
#endif
  atomic { assert(frame[r]); result[r] = DONE };
#ifdef TOUCH_AFTER_RESULT
  assert(frame[r]);
#endif
#ifndef SET_BEFORE_RESULT
  Set(r, EVENT, before);
#endif
}

proctype requester(byte me) {
  byte n, seen, bits, res, before, next;
  bool may;
  do
  :: n < 1 + (me == 0) ->
     atomic { frame[me] = true; result[me] = PENDING };
     if
     :: true /* not asked for, or Stopper_lock is taken */
     :: /* TryRunHere */
#ifdef OPEN_READ_EARLY
        Lock();
        may = (empty(queued) && !refusing_);
        Unlock();
#endif
        atomic { !stopper_lock_ -> stopper_lock_ = true };
#ifndef OPEN_READ_EARLY
        Lock();
        may = (empty(queued) && !refusing_);
        Unlock();
#endif
        if :: may -> RunStop(me) :: else fi;
        stopper_lock_ = false;
        if :: may -> may = false; goto await :: else fi
     fi;
     /* Push */
     Lock();
     if
     :: refusing_ -> Unlock(); frame[me] = false; break
     :: atomic {
          !refusing_ && queued ?? [eval(1 - me)] && !follower[1 - me] ->
          follower[1 - me] = me + 1 /* coalesces */
        };
        Unlock()
     :: !refusing_ -> queued!me; Unlock()
     fi;
#ifdef SLEEPS_READ_EARLY
     may = vm_thread_sleeps_;
#endif
#ifndef NO_SIGNAL
     signal_++;
#endif
#ifndef SLEEPS_READ_EARLY
     may = vm_thread_sleeps_;
#endif
     if :: may -> may = false; vm_waiting = false :: else fi;
await:
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
  byte signal, request, before, next;
  bool got;
  do
  :: /* AwaitWork */
#ifndef SIGNAL_READ_LATE
     signal = signal_;
#endif
     Lock();
     if
     :: nempty(queued) -> Unlock()
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
        :: vm_waiting -> goto idle /* for good, see FutexWait */
        :: else -> vm_thread_sleeps_ = false
        fi;
        goto again
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
     atomic { !stopper_lock_ -> stopper_lock_ = true };
     /* TakeBatch, one request at a time */
     Lock();
     if
     :: nempty(queued) -> queued?request; got = true
     :: empty(queued)
     fi;
     Unlock();
     if :: got -> RunStop(request) :: else fi;
     stopper_lock_ = false;
again:
     atomic { signal = 0; request = 0; got = false }
  od;
  assert(empty(queued));
  atomic { !stopper_lock_ -> stopper_lock_ = true };
  closed_for_ever = true;
  stopper_lock_ = false;
idle:
  skip
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
