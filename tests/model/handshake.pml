/* Handshakes: one owner that enters Managed, polls, leaves and exits, and R
   requesters that ask it, ASKS times each; the last of them suspends it first
   if -DSUSPEND.
   Code: thread/handshake_queue, safepoint/handshake_round, safepoint/serve,
   safepoint/poll, thread/transition; -DSUSPEND: thread/suspension.

   Shown: no closure runs beside managed code, after the exit, or twice; each
   request is done once or gone; no request is touched after its outcome; nobody
   is left asleep; a suspended owner is in no managed code.

   Fence modes:
     (none)             membarrier: enter and leave unfenced
     -DENTER_FENCED     full with membarrier: leave unfenced
     -DENTER_FENCED -DLEAVE_FENCED   full without membarrier
   -DLIVE: requesters ask without end, and the owner does not exit: it gets into
   Managed again and again.
   Broken twins, each to be rejected (in the modes that run_models.sh lists):
     -DNO_ORDER_ALL          a proxy without OrderAll between arming and looking
     -DNO_SECOND_LOOK        with it, but with the state that it saw before
     -DNO_CLAIM_CHECK        RunAll does not look whether a proxy has the claim
     -DCLAIM_UNQUEUED        TryClaim does not look whether it is queued still
     -DPROXY_DISARMS         the proxy clears the owner's poll word
     -DDISARM_PLAIN          Serve disarms by a load and a store
     -DFORGET_CAUSES         Serve forgets "handshake" when it steps back
     -DNO_ORDER_BEFORE_SLEEP Announce without OrderAllBeforeSleep, ever
     -DNO_WAITED             Announce does not set "waited"
     -DNO_LOOK_AFTER_LISTEN  sleeps without another look after Announce
     -DSETTLE_IN_TWO         the outcome is stored after a look at "awaited"
     -DTELL_AFTER            Settle reads the request after the outcome
     -DNO_NEXT               who gives the claim back does not tell the next
     -DOWNER_ASLEEP          nor the owner that waits for it
     -DNO_CLOSE              the exit does not close the queue
     -DCLOSE_UNCLAIMED       it does not wait for the claim
     -DNO_TURN               LIVE: the claim goes to whoever comes first, though
                             the owner has waited for it, or was armed again
     -DNO_TURN_BEFORE        LIVE: only if it has waited, not if it was armed
     -DTURN_LATE             LIVE: it asks for its turn where it waits, and not
                             in RunAll already
     -DSUSPENDED_FIRST       SUSPEND: the owner looks whether it is suspended
                             before it runs what is queued, and not after
   Stops are stop.pml's: the requester is Managed whenever it needs to be. */
#ifndef R
#define R 2
#endif
#ifndef ASKS
#define ASKS 1
#endif
#ifndef SB
#define SB 1
#endif
#define NT (R + 1)
#define OWNER R /* requesters are 0 .. R - 1 */
#define STATE 0
#define POLL 1
#define NADDR 2

#define NATIVE 1
#define MANAGED 2
#define BLOCKED 3
#define WAITED 1
#define HANDSHAKE 2

#include "tso.pml"

/* HandshakeQueue, under its lock, which is a step: it is a leaf, and taking and
   releasing it are locked instructions. */
byte queue[R]; /* requester + 1, oldest first */
byte queued;
bool claimed, closed, owner_waits;

/* HandshakeRequest: one per requester. Read-modify-writes. */
#define PENDING 0
#define AWAITED 1
#define DONE 2
#define GONE 3
byte outcome[R];

bool event[R];   /* WaitWord kEvent of each requester */
bool claim_free; /* kClaim of the owner's */
byte suspended;  /* Suspension: changed by locked instructions */
bool resumed;    /* kResume of the owner's */

/* Ghosts. */
bool in;        /* the owner executes managed code */
bool exited;
bool by_proxy;  /* a closure is being run by a proxy */
bool frame[R];  /* the request is in a frame that is there */
bool ran[R];
bool held;      /* Suspend has returned, Resume was not called */
byte ended;

#define Goes_in() assert(!by_proxy && !held && !exited); in = true

inline PushBack(r) {
  queue[queued] = r + 1;
  queued++
}
inline Remove(r) { /* uses no local: R is 2 or less */
  if
  :: queue[0] == r + 1 -> queue[0] = queue[R - 1]; queue[R - 1] = 0
  :: else -> queue[R - 1] = 0
  fi;
  queued--
}
#define IsQueued(r) (queue[0] == r + 1 || queue[R - 1] == r + 1)

/* Inside a step. */
inline EventForFirst() {
  if
  :: !owner_waits && queue[0] ->
     assert(frame[queue[0] - 1]);
     if
     :: outcome[queue[0] - 1] == AWAITED -> event[queue[0] - 1] = true
     :: else
     fi
  :: else
  fi
}
inline GiveClaimBack() {
  claimed = false;
#ifndef OWNER_ASLEEP
  if :: owner_waits -> claim_free = true :: else fi
#endif
}

/* old: a local. */
inline Settle(t, r, what, old) {
#ifdef SETTLE_IN_TWO
  d_step { drain_all(t); assert(frame[r]); old = outcome[r] };
  d_step { assert(frame[r]); outcome[r] = what };
#else
  d_step { drain_all(t); assert(frame[r]); old = outcome[r]; outcome[r] = what };
#endif
#ifdef TELL_AFTER
  assert(frame[r]);
#endif
  d_step { if :: old == AWAITED -> event[r] = true :: else fi; old = 0 }
}

inline RunClosure(r) {
  d_step { assert(!in && !exited && frame[r] && !ran[r]); ran[r] = true }
}

/* --- The owner --- */

inline PublishSafeState(to) {
#ifdef LEAVE_FENCED
  XCHG(OWNER, STATE, to, p);
#else
  ST(OWNER, STATE, to);
#endif
  LD(OWNER, POLL, p);
  if
  :: p & WAITED -> /* WakeWaiterOf */
     FENCE(OWNER);
     LD(OWNER, POLL, p);
     if
     :: p & HANDSHAKE -> d_step { drain_all(OWNER); EventForFirst() } /* TellFirst */
     :: else
     fi
  :: else
  fi;
  p = 0
}
inline StepBack() { PublishSafeState(BLOCKED) }

/* entered: past the check. */
inline TryEnterManaged() {
#ifdef ENTER_FENCED
  XCHG(OWNER, STATE, MANAGED, p);
#else
  ST(OWNER, STATE, MANAGED);
#endif
  d_step { look(OWNER, POLL, p); entered = (p == 0); p = 0 }
}

inline RunAll() {
  d_step {
    drain_all(OWNER);
    served = true;
#ifndef NO_CLAIM_CHECK
    served = !claimed;
#endif
    left = 0;
    next = 0;
    if
    :: served ->
       owner_waits = false;
       if :: queued -> claimed = true; left = queued; next = queue[0] :: else fi
    :: else ->
#ifndef TURN_LATE
       owner_waits = true
#endif
    fi
  };
  do
  :: next ->
     RunClosure(next - 1);
     d_step {
       drain_all(OWNER);
       done = next - 1;
       Remove(done);
       left--;
       next = (left -> queue[0] : 0);
       if :: !next -> claimed = false :: else fi
     };
     Settle(OWNER, done, DONE, p);
     done = 0
  :: else -> break
  od
}

inline AwaitClaim() {
  do
  :: true ->
     d_step {
       drain_all(OWNER);
       p = claimed;
       if :: claimed -> owner_waits = true :: else fi
     };
     if
     :: !p -> break
     :: else -> claim_free -> d_step { claim_free = false; p = 0 }
     fi
  od;
  p = 0
}

inline AwaitResume() {
  do
  :: suspended -> resumed -> resumed = false
  :: else -> break
  od
}

/* In Blocked; returns in Managed. */
inline Serve() {
  causes = 0;
  do
  ::
#ifdef DISARM_PLAIN
     LD(OWNER, POLL, p);
     ST(OWNER, POLL, 0);
#else
     XCHG(OWNER, POLL, 0, p);
#endif
#ifdef FORGET_CAUSES
     d_step { causes = p; p = 0 };
#else
     d_step { causes = causes | p; p = 0 };
#endif
#ifdef SUSPENDED_FIRST
     if :: suspended -> AwaitResume() :: else fi;
#endif
     TryEnterManaged();
     if
     :: !entered ->
        StepBack();
#if !defined(NO_TURN) && !defined(NO_TURN_BEFORE)
        if
        :: causes & HANDSHAKE -> d_step { drain_all(OWNER); owner_waits = true } /* TakeTurn */
        :: else
        fi
#endif
     :: else ->
        d_step { entered = false; served = true };
        if :: causes & HANDSHAKE -> RunAll() :: else fi;
        if
        :: !served -> StepBack(); AwaitClaim()
#ifndef SUSPENDED_FIRST
        :: served && suspended -> StepBack(); AwaitResume()
        :: served && !suspended -> break
#else
        :: served -> break
#endif
        fi
     fi
  od;
  skip;
  d_step { causes = 0; entered = false; served = false; Goes_in() }
}

proctype owner() {
  byte p, causes, left, next, done;
  bool entered, served;
  do
  :: TryEnterManaged();
     if
     :: entered -> d_step { entered = false; Goes_in() }
     :: else -> StepBack(); Serve()
     fi;
     do
     :: LD(OWNER, POLL, p);
        if
        :: p -> /* PollSlow: TakeHandshakeBits */
           in = false;
           XCHG(OWNER, POLL, 0, p);
           p = 0;
           RunAll();
           assert(served);
           if
#ifndef SUSPENDED_FIRST
           :: suspended -> PublishSafeState(BLOCKED); Serve()
#endif
           :: else -> served = false; Goes_in()
           fi
        :: else -> break
        fi
     od;
     if
#ifndef LIVE
     :: true -> /* managed code for ever: only its poll can bring it round */
        FENCE(OWNER);
        if :: mem[POLL] :: ended == R fi
#endif
     :: true
     fi;
     if
     :: LD(OWNER, POLL, p);
        if
        :: p -> p = 0; in = false; PublishSafeState(BLOCKED); Serve()
        :: else
        fi
     :: true
     fi;
     in = false;
     PublishSafeState(NATIVE);
#ifndef LIVE
     if
     :: true -> ended == R /* native code for ever: nobody but a proxy */
     :: true
     fi
  :: break
#endif
  od;
  /* HandshakeQueue::Close */
#ifndef NO_CLOSE
  skip;
  d_step { drain_all(OWNER); closed = true };
#ifndef CLOSE_UNCLAIMED
  AwaitClaim();
#endif
  do
  :: true ->
     d_step {
       drain_all(OWNER);
       next = queue[0];
       if :: next -> done = next - 1; Remove(done) :: else fi
     };
     if
     :: next -> Settle(OWNER, done, GONE, p); done = 0
     :: else -> break
     fi
  od;
#endif
  assert(!by_proxy);
  exited = true
}

/* --- Requesters --- */

#define IsSettled(r) (outcome[r] >= DONE)

/* membarrier(2): only the owner ever has anything in its store buffer. */
inline MembarrierHere() { d_step { drain_all(OWNER); skip } }

inline OrderAll() {
#ifndef NO_ORDER_ALL
#ifdef ENTER_FENCED
  FENCE(me);
#else
  MembarrierHere();
#endif
#endif
  skip
}

inline Run(r) {
  atomic { RunClosure(r); by_proxy = true };
  atomic { assert(!in); by_proxy = false };
#ifdef PROXY_DISARMS
  XCHG(me, POLL, 0, k);
#endif
  d_step { drain_all(me); Remove(r); GiveClaimBack();
#ifndef NO_NEXT
           EventForFirst()
#endif
         }
}

/* ok: whether the claim was taken, and the closure run. */
inline TryProxy() {
  d_step {
    drain_all(me);
    ok = !claimed && !closed;
#ifndef CLAIM_UNQUEUED
    ok = ok && IsQueued(me);
#endif
#ifndef NO_TURN
    ok = ok && !owner_waits;
#endif
    if :: ok -> claimed = true :: else fi
  };
  if
  :: ok ->
     Run(me);
     outcome[me] = DONE
  :: else
  fi
}

inline Announce() {
  d_step { announced = true; event[me] = false };
  d_step { drain_all(me); if :: outcome[me] == PENDING -> outcome[me] = AWAITED :: else fi };
#ifndef NO_WAITED
  LD(me, STATE, s);
  if :: s == MANAGED -> OR(me, POLL, WAITED) :: else fi;
  s = 0;
#endif
#ifdef NO_ORDER_BEFORE_SLEEP
  timed = false
#else
#ifdef LEAVE_FENCED
  FENCE(me);
  timed = false
#else
  if
  :: slept -> MembarrierHere(); timed = false
  :: else -> timed = true
  fi
#endif
#endif
}

inline Handshake() {
  d_step { frame[me] = true; outcome[me] = PENDING; ran[me] = false };
  d_step {
    drain_all(me);
    if
    :: closed -> outcome[me] = GONE
    :: else -> PushBack(me)
    fi
  };
  if :: outcome[me] == PENDING -> OR(me, POLL, HANDSHAKE) :: else fi;
  do
  :: IsSettled(me) -> break
  :: else ->
     LD(me, STATE, s);
     if
     :: s != MANAGED && !exited ->
        OrderAll();
#ifndef NO_SECOND_LOOK
        LD(me, STATE, s);
#endif
        if :: s != MANAGED -> s = 0; TryProxy() :: else -> s = 0 fi
     :: else -> s = 0
     fi;
     if
     :: ok -> ok = false
     :: else ->
        if
        :: !announced ->
           Announce();
#ifdef NO_LOOK_AFTER_LISTEN
           if :: IsSettled(me) -> skip :: else -> event[me] fi
#endif
        :: else ->
           if
           :: event[me]
           :: timed
           fi;
           d_step { slept = true; announced = false; timed = false }
        fi
     fi
  od;
  s = 0;
  assert(ran[me] == (outcome[me] == DONE));
  d_step { frame[me] = false; announced = false; slept = false; timed = false; event[me] = false }
}

proctype requester(byte me) {
  byte s, k, n;
  bool ok, announced, slept, timed;
  do
#ifdef LIVE
  :: true ->
#else
  :: n < ASKS -> n++;
#endif
#ifdef SUSPEND
     if
     :: me == R - 1 -> /* Suspend */
        d_step { drain_all(me); suspended++ };
        OR(me, POLL, HANDSHAKE);
        Handshake();
        if
        :: outcome[me] == DONE -> atomic { assert(!in); held = true }
        :: else
        fi;
        held = false; /* Resume */
        d_step { drain_all(me); suspended--; resumed = true }
     :: else -> Handshake()
     fi
#else
     Handshake()
#endif
#ifndef LIVE
  :: else -> break
#endif
  od;
  ended++
}

/* When nothing moves any more: all are through. */
proctype watch() {
  timeout -> assert(ended == R && exited)
}

#ifdef LIVE
ltl gets_in { [] <> in }
#endif

init {
  byte i;
  atomic {
    mem[STATE] = NATIVE;
    run owner();
    do :: i < R -> run requester(i); i++ :: else -> break od;
    run watch()
  }
}
