/* Mutex on the parking lot: threads that lock and unlock, and may give up.
   Code: sync/mutex.cc, sync/parking_lot.cc. That a waiter wakes up once it is
   done is wait_word.pml's and join.pml's business: here it waits for `done`.

   The word changes atomically: owner, PARKED, WOKEN. What the code does under
   the lock of the bucket is between Bucket and Unbucket.

   Shown: one owner at a time; nobody is left waiting, though the mutex is handed
   to nobody; PARKED if and only if there is a queue, when the bucket is free.

   Broken twins:
     -DUNPARK_NOBODY     an unlock lets nobody go
     -DREPARK_WOKEN      who was let go and waits again leaves WOKEN set
     -DTAKE_LEAVES_WOKEN who was let go and takes the mutex leaves WOKEN set
     -DPARK_BLIND        the word is not looked at again under the lock
     -DPARK_ON_FREE      newcomers that may not overtake queue up at a mutex
                         that nobody is about to take
     -DGIVE_UP_BLIND     who gives up does not look whether it is done */
#ifndef N
#define N 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define MAY_OVERTAKE (overtakes < 1)

byte owner; /* 0: free */
bool parked, woken;
byte overtakes;

byte bucket; /* who has its lock */
byte queue[N], length;
bool done[N + 1];
byte inside;

inline Bucket() { atomic { bucket == 0; bucket = me } }
inline Unbucket() {
  atomic { assert(parked == (length > 0)); bucket = 0 }
}

inline PushBack() { queue[length] = me; length++ }
inline PushFront() {
  i = length;
  do :: i > 0 -> queue[i] = queue[i - 1]; i-- :: else -> break od;
  queue[0] = me;
  length++
}
inline RemoveAt(at) {
  i = at;
  do
  :: i + 1 < length -> queue[i] = queue[i + 1]; i++
  :: else -> break
  od;
  length--;
  queue[length] = 0;
  i = 0
}

/* got: whether. */
inline TryTake() {
  atomic {
    got = false;
    if
    :: owner == 0 && mine ->
       owner = me; got = true; overtakes = 0;
#ifndef TAKE_LEAVES_WOKEN
       woken = false
#endif
    :: owner == 0 && !mine && !parked && !woken -> owner = me; got = true
    :: owner == 0 && !mine && (parked || woken) && MAY_OVERTAKE ->
       owner = me; got = true; overtakes++
    :: else
    fi
  }
}

inline Park() {
  Bucket();
  atomic {
    if
#ifndef PARK_BLIND
    :: owner == 0 && (mine ||
#ifndef PARK_ON_FREE
                      (!parked && !woken) ||
#endif
                      MAY_OVERTAKE) -> waits = false
#endif
    :: else ->
       waits = true;
       parked = true;
#ifndef REPARK_WOKEN
       if :: mine -> woken = false :: else fi;
#endif
       done[me] = false;
       if :: mine -> PushFront() :: else -> PushBack() fi;
       mine = false
    fi
  };
  Unbucket()
}

inline GiveUp() {
  Bucket();
  atomic {
    if
#ifndef GIVE_UP_BLIND
    :: done[me] -> mine = true
#endif
    :: else ->
       i = 0;
       do
       :: i < length && queue[i] != me -> i++
       :: else -> break
       od;
       if :: i < length -> RemoveAt(i) :: else fi;
       i = 0;
       parked = (length > 0);
       gone = true
    fi
  };
  Unbucket()
}

inline Unlock() {
  do
  :: atomic { !(parked && !woken) -> owner = 0; break }
  :: parked && !woken ->
     Bucket();
     atomic {
       assert(owner == me);
       if
#ifndef UNPARK_NOBODY
       :: length > 0 ->
          other = queue[0];
          RemoveAt(0);
          woken = true;
          parked = (length > 0)
#endif
       :: else -> other = 0
       fi;
       owner = 0
     };
     if :: other -> done[other] = true :: else fi;
     other = 0;
     Unbucket();
     break
  od
}

proctype thread(byte me) {
  byte n, i, other;
  bool got, mine, waits, gone;
  do
  :: n < ROUNDS ->
     gone = false;
     mine = false;
     TryTake();
     do
     :: got || gone -> break
     :: else ->
        Park();
        if
        :: waits ->
           if
           :: done[me] -> mine = true
           :: n + 1 < ROUNDS -> GiveUp() /* the last time it waits for ever */
           fi
        :: else
        fi;
        if :: !gone -> TryTake() :: else fi
     od;
     if
     :: got ->
        inside++;
        assert(inside == 1 && owner == me);
        inside--;
        Unlock()
     :: else
     fi;
     got = false;
     n++
  :: else -> break
  od
}

init {
  byte t = 1;
  atomic {
    do :: t <= N -> run thread(t); t++ :: else -> break od
  }
}
