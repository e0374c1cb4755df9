/* Leaving a stop: StopProtocol::Resume wakes FIRST sleepers, each of whom
   wakes kWakeFanOut more (SleepForStop, in both its callers), while the VM
   thread stops again at once; then CloseForEver, or not.
   Code: thread/stop_control, safepoint/stop_protocol.

   Memory is SC here: the only stores are the VM thread's, each followed by a
   system call. The futex queue is first in, first out, as the kernel's is for
   threads of one priority; -DANY_ORDER lets a wake-up take any sleeper (real
   time threads go first).

   Shown: nobody is left asleep, except those that park in a closed runtime;
   wake-ups within a stop are bounded; and with -DLIVE (endless back-to-back
   stops, weak fairness, `pan -a -f`): each WaitForEndOfPresentStop ends. The
   last needs the queue's order: -DLIVE -DANY_ORDER is rejected, which is no
   bug but the price of real-time sleepers.

   Broken twins:
     -DNO_PASS           who is woken wakes nobody
     -DPASS_ALWAYS       passes on also while its own stop is still on: the
                         sleepers of a new stop wake each other (a storm)
     -DONLY_MUTATORS_PASS  WaitForEndOfPresentStop does not pass on
     -DNO_CLOSE_WAKE     CloseForEver wakes nobody (with -DANY_ORDER: a late
                         wake-up of the chain goes to one who parks)
     -DWAITS_FOR_NONE    with -DLIVE: WaitForEndOfPresentStop waits for every
                         stop that it meets */
#ifndef W
#define W 3 /* sleepers */
#endif
#ifndef FIRST
#define FIRST 1
#endif
#ifndef FAN_OUT
#define FAN_OUT 2 /* kWakeFanOut; 1 strands more with few sleepers */
#endif

/* The stop word, without its number: whether a stop is on, and for each thread
   whether the word has changed since it was read there. So any number of stops
   is covered. */
bool stop_is_on;
bool changed[W];
bool closed;
bool asleep[W];
bool present[W]; /* in WaitForEndOfPresentStop, else in WaitWhileStopOn */
byte taken[W];   /* ghost: wake-ups received in the stop that is on */
byte ended;      /* ghost */
byte queue[W];   /* of the futex, oldest first: id + 1 */
byte queued;

/* No step of its own. Takes sleeper queue[at] off the futex. */
inline take(at) {
  asleep[queue[at] - 1] = false;
#ifndef LIVE
  if
  :: stop_is_on -> taken[queue[at] - 1]++
  :: else
  fi;
#endif
  queued--;
  j = at;
  do :: j < queued -> queue[j] = queue[j + 1]; j++ :: else -> break od;
  queue[queued] = 0;
  j = 0
}
inline FutexWake(count) {
  atomic {
    k = count;
    do
    :: k > 0 && queued > 0 ->
       if
       :: true -> take(0)
#ifdef ANY_ORDER
       :: queued > 1 -> take(1)
       :: queued > 2 -> take(2)
#endif
       fi;
       k--
    :: else -> break
    od;
    k = 0
  }
}

/* Sleeps if the word is still the one that was read; then passes the wake-up on. */
inline SleepForStop() {
  atomic {
    if
    :: !changed[me] ->
       asleep[me] = true;
       queue[queued] = me + 1;
       queued++;
       woken = true
    :: else /* EAGAIN: took a wake-up from nobody */
    fi
  };
  if
  :: woken ->
     atomic {
       !asleep[me];
       woken = false;
#ifndef LIVE
       assert(taken[me] <= 4);
#endif
#ifdef NO_PASS
       pass = false
#else
#ifdef PASS_ALWAYS
       pass = true
#else
#ifdef ONLY_MUTATORS_PASS
       pass = (changed[me] && !present[me])
#else
       pass = (changed[me])
#endif
#endif
#endif
     };
     if :: pass -> pass = false; FutexWake(FAN_OUT) :: else fi
  :: else
  fi
}

proctype sleeper(byte me) {
  byte k, j;
  bool woken, pass;
  do
  :: true -> /* WaitWhileStopOn */
     do
     :: atomic { changed[me] = false; if :: stop_is_on :: else -> break fi };
        SleepForStop()
     od
  :: atomic { present[me] = true; changed[me] = !stop_is_on };
#ifdef WAITS_FOR_NONE
     do
     :: atomic {
          changed[me] = false;
          if :: stop_is_on && !closed :: else -> break fi
        };
        SleepForStop()
     od;
#else
     do /* WaitForEndOfPresentStop */
     :: if :: !changed[me] :: else -> break fi;
        if :: closed -> break :: else fi;
        SleepForStop()
     od;
#endif
     atomic { changed[me] = false; present[me] = false }
  :: break
  od;
  ended++
}

inline WriteStopWord(on) {
  atomic {
    stop_is_on = on;
    do
    :: j < W -> changed[j] = true; taken[j] = 0; j++
    :: else -> j = 0; break
    od
  }
}

proctype vm_thread() {
  byte k, j;
  do
  :: WriteStopWord(true);
     WriteStopWord(false); /* Resume */
     FutexWake(FIRST)
#ifndef LIVE
  :: break
  :: /* CloseForEver */
     closed = true;
     WriteStopWord(true);
#ifndef NO_CLOSE_WAKE
     FutexWake(W);
#endif
     break
#endif
  od;
  ended++
}

#ifdef LIVE
ltl each_wait_ends { [] (present[0] -> <> !present[0]) }
#else
proctype watch() {
  byte i;
  timeout ->
  atomic {
    do
    :: i < W ->
       if :: asleep[i] && closed && !present[i] -> ended++ :: else fi;
       i++
    :: else -> i = 0; break
    od;
    assert(ended == W + 1)
  }
}
#endif

init {
  byte i;
  atomic {
    do :: i < W -> run sleeper(i); i++ :: else -> i = 0; break od;
    run vm_thread();
#ifndef LIVE
    run watch()
#endif
  }
}
