/* The stop: StopProtocol against N mutators that start, enter Managed, poll,
   leave, exit, and give their slots to the next thread; STOPS stops back to
   back, then perhaps CloseForEver.
   Code: thread/transition, thread/stop_control, thread/registry,
   safepoint/stop_protocol, safepoint/serve; start protocol kOutside.

   Shown: I1 (nobody is past the check while the world is stopped); a member of
   a scan does not give up its slot before that stop ends; nobody is left asleep
   or waiting, except those that park in a closed runtime; exits end there too.

   Fence modes:
     (none)             membarrier: enter and leave unfenced
     -DENTER_FENCED     full with membarrier: leave unfenced
     -DENTER_FENCED -DLEAVE_FENCED   full without membarrier
   Broken twins, each to be rejected (in the modes that run_models.sh lists):
     -DNO_ORDER_ALL          WriteStopWord without OrderAll
     -DNO_ORDER_BEFORE_SLEEP SleepForStragglers without OrderAllBeforeSleep
     -DFENCE_BEFORE_SLEEP    it is a fence though leaving is unfenced
     -DNO_LEAVE_FENCE        full, no membarrier, and leaving is a plain store
     -DNO_SLEEPER_FENCE      WakeWaiterOf reads state_sleepers without a fence
     -DSILENT_STEP_BACK      StepBack stores Blocked and looks at nothing
     -DPOLL_WORD_ONLY        TryEnterManaged does not look at the stop word
     -DBLIND_WAIT            ServePoll sleeps without a look at the stop word
     -DDISARM_AFTER_WAIT     ServePoll looks at the stop word, then disarms:
                             the look may pass the store of Blocked, so that
                             the bit it wipes is one that a stopper relies on
     -DDISARM_LATE           ServePoll disarms after TryEnterManaged
     -DNO_WAIT_IN_LEAVE      Leave does not wait for the present stop
     -DLEAVE_UNFENCED        Leave: no fence between Terminated and the look
                             (full only: membarrier covers it, changes_ too)
     -DLEAVE_LOOKS_FIRST     Leave: stop word read before Terminated is stored
     -DLEAVE_WAITS_FOR_NONE  Leave waits until no stop is on at all
     -DIGNORE_CLOSED         WaitForEndOfPresentStop does not look at `closed`
     -DCLOSED_LATE           `closed` stored after the last stop word
   The wake-up at Resume is a wake-all here; the chain has its own model. */
#ifndef N
#define N 2
#endif
#ifndef STOPS
#define STOPS 2
#endif
#ifndef SB
#define SB 2
#endif
#define NT (N + 1)
#define VM N
#define STOP 0
#define CLOSED 1
#define S(i) (2 + (i))
#define P(i) (2 + N + (i))
#define Z(i) (2 + 2 * N + (i)) /* state_sleepers */
#define NADDR (2 + 3 * N)

/* ThreadState and PollBit */
#define VACANT 0
#define NEW 1
#define NATIVE 2
#define MANAGED 3
#define BLOCKED 4
#define TERMINATED 5
#define SAFEPOINT 1
#define WAITED 2

#include "tso.pml"

bool in[N];      /* ghost: past the check, may touch managed data */
bool stopped;    /* ghost: world_.stopped_ */
bool counted[N]; /* ghost: in world_.members_ of the stop that is on */
bool parked[N];  /* ghost: sleeps in WaitWhileStopOn */
byte ended;      /* ghost: processes that are through */

/* --- The mutator's side --- */

inline PublishSafeState(to) {
#if defined(LEAVE_FENCED) && !defined(NO_LEAVE_FENCE)
  XCHG(me, S(me), to, p);
#else
  ST(me, S(me), to);
#endif
  LD(me, P(me), p);
  if
  :: p & WAITED -> /* WakeWaiterOf */
#ifndef NO_SLEEPER_FENCE
     FENCE(me);
#endif
     LD(me, Z(me), p);
     if
     :: p -> FUTEX_WAKE_ALL(me, S(me), p)
     :: else
     fi
  :: else -> p = 0
  fi
}

/* Sets in[me], or leaves it false. */
inline TryEnterManaged() {
#ifdef ENTER_FENCED
  XCHG(me, S(me), MANAGED, w);
#else
  ST(me, S(me), MANAGED);
#endif
#ifdef POLL_WORD_ONLY
  w = 0;
#else
  d_step { look(me, STOP, w); w = w & 1 };
#endif
  d_step {
    look(me, P(me), p);
    if
    :: p == 0 && w == 0 -> in[me] = true; assert(!stopped)
    :: else
    fi;
    p = 0;
    w = 0
  }
}

inline StepBack() {
#ifdef SILENT_STEP_BACK
  ST(me, S(me), BLOCKED);
#else
  PublishSafeState(BLOCKED);
#endif
}

inline WaitWhileStopOn() {
  do
  :: LD(me, STOP, w);
     if
#ifdef BLIND_WAIT
     :: true ->
        parked[me] = true; FUTEX_WAIT(me, STOP, w); parked[me] = false; break
#endif
     :: w & 1 ->
        parked[me] = true;
        FUTEX_WAIT(me, STOP, w);
        d_step { parked[me] = false; w = 0 }
     :: else -> w = 0; break
     fi
  od;
  skip
}

inline WaitForEndOfPresentStop() {
  LD(me, STOP, w);
  do
  :: !(w & 1) -> break
  :: else ->
     d_step { look(me, STOP, p); p = (p == w) };
     if :: !p -> break :: else fi;
#ifndef IGNORE_CLOSED
     LD(me, CLOSED, p);
     if :: p -> break :: else fi;
#endif
     FUTEX_WAIT(me, STOP, w)
  od;
  p = 0;
  w = 0
}

proctype mutator(byte me) {
  byte p, w;
  do
  :: /* Admit; the starter waits (MembershipChange), Publish; the thread runs */
     ST(me, P(me), 0);
     WaitForEndOfPresentStop();
     ST(me, S(me), NEW);
     FENCE(me); /* changes_ */
     ST(me, S(me), NATIVE);
     do
     :: /* EnterManaged; from its first failure on, ServePoll */
        TryEnterManaged();
        do
        :: in[me] ->
           if
           :: LD(me, P(me), p);
              if
              :: p -> /* PollSlow, ServePoll */
                 in[me] = false;
                 PublishSafeState(BLOCKED);
                 goto serve
              :: else
              fi
           :: break
           fi
        :: else ->
           StepBack();
serve:
#if !defined(DISARM_AFTER_WAIT) && !defined(DISARM_LATE)
           XCHG(me, P(me), 0, p);
#endif
           WaitWhileStopOn();
#ifdef DISARM_AFTER_WAIT
           XCHG(me, P(me), 0, p);
#endif
           p = 0;
           TryEnterManaged();
#ifdef DISARM_LATE
           XCHG(me, P(me), 0, p);
           p = 0;
#endif
        od;
        in[me] = false;
        PublishSafeState(NATIVE)
     :: break
     od;
     /* LeaveRuntime: Leave, Retire */
#ifdef LEAVE_LOOKS_FIRST
     WaitForEndOfPresentStop();
     XCHG(me, S(me), TERMINATED, p);
     p = 0;
#else
#ifdef LEAVE_UNFENCED
     ST(me, S(me), TERMINATED);
#else
     XCHG(me, S(me), TERMINATED, p);
     p = 0;
#endif
#ifdef LEAVE_WAITS_FOR_NONE
     do
     :: LD(me, STOP, w); if :: w & 1 -> FUTEX_WAIT(me, STOP, w) :: else -> break fi
     od;
#else
#ifndef NO_WAIT_IN_LEAVE
     WaitForEndOfPresentStop();
#endif
#endif
#endif
     assert(!counted[me]);
     FENCE(me)
     /* Retire; the slot goes to the next thread */
  :: break
  od;
  ended++
}

/* --- The stopper's side --- */

inline OrderAll() {
#ifdef NO_ORDER_ALL
  skip;
#else
#ifdef ENTER_FENCED
  FENCE(VM);
#else
  MEMBARRIER(VM, k);
#endif
#endif
}
inline OrderAllBeforeSleep() {
#ifdef NO_ORDER_BEFORE_SLEEP
  skip;
#else
#if defined(LEAVE_FENCED) || defined(FENCE_BEFORE_SLEEP)
  FENCE(VM);
#else
  MEMBARRIER(VM, k);
#endif
#endif
}
inline WriteStopWord() {
  d_step { word++; skip };
  ST(VM, STOP, word);
  OrderAll();
}
inline Scan() {
  do
  :: i < N ->
     d_step {
       look(VM, S(i), st);
       counted[i] = (!last && st != VACANT && st != TERMINATED);
       straggler[i] = (st == MANAGED)
     };
     if :: straggler[i] -> OR(VM, P(i), SAFEPOINT) :: else fi;
     d_step { st = 0; i++ }
  :: else -> i = 0; break
  od;
  skip
}
inline NoteIfSafe(i) {
  d_step { look(VM, S(i), st); straggler[i] = (st == MANAGED); st = 0 }
}
inline SleepForStragglers() {
  do /* the last look of SpinForStragglers; who is still late is marked */
  :: i < N && straggler[i] ->
     NoteIfSafe(i);
     if :: straggler[i] -> OR(VM, P(i), WAITED) :: else fi;
     i++
  :: i < N && !straggler[i] -> i++
  :: i == N -> i = 0; break
  od;
  ordered = false;
  do
  :: i < N && straggler[i] ->
     if
#ifdef LEAVE_FENCED
     :: !ordered -> OrderAllBeforeSleep(); ordered = true
#else
     :: !ordered -> /* the moment has passed, or not yet */
        if :: OrderAllBeforeSleep(); ordered = true :: skip fi
#endif
     :: else
     fi;
     NoteIfSafe(i);
     if
     :: straggler[i] ->
        OR(VM, Z(i), 1);
        if
        :: ordered -> FUTEX_WAIT(VM, S(i), MANAGED)
        :: else -> FUTEX_WAIT_TIMED(VM, S(i), MANAGED)
        fi;
        XCHG(VM, Z(i), 0, st);
        st = 0
     :: else
     fi
  :: i < N && !straggler[i] -> i++
  :: i == N -> i = 0; break
  od;
  skip
}
inline Resume() {
  d_step {
    stopped = false;
    do :: i < N -> counted[i] = false; i++ :: else -> i = 0; break od;
    word++
  };
  ST(VM, STOP, word);
  FUTEX_WAKE_ALL(VM, STOP, k);
}

inline CloseForEver() {
  last = true;
#ifndef CLOSED_LATE
  ST(VM, CLOSED, 1);
#endif
  WriteStopWord();
  Scan();
#ifdef CLOSED_LATE
  ST(VM, CLOSED, 1);
#endif
  FUTEX_WAKE_ALL(VM, STOP, k)
}

proctype vm_thread() {
  byte word, n, i, k, st;
  bool ordered;
  bool last; /* CloseForEver waits for nobody, and nobody for it */
  bool straggler[N];
  do
  :: n < STOPS ->
     WriteStopWord();
     Scan();
     SleepForStragglers();
     atomic {
       stopped = true;
       do :: i < N -> assert(!in[i]); i++ :: else -> i = 0; break od
     };
     n++; /* the operations */
     Resume()
  :: else -> break
  od;
  if
  :: true /* no more requests; the runtime lives on */
  :: true -> CloseForEver()
  fi;
  ended++
}

/* When nothing moves any more: all are through, or parked for good. */
proctype watch() {
  byte i;
  timeout ->
  d_step {
    do
    :: i < N ->
       if
       :: parked[i] && waiting[i] == STOP + 1 && mem[CLOSED] -> ended++
       :: else
       fi;
       i++
    :: else -> i = 0; break
    od;
    assert(ended == NT)
  }
}

init {
  byte i;
  atomic {
    do :: i < N -> run mutator(i); i++ :: else -> i = 0; break od;
    run vm_thread();
    run watch()
  }
}
