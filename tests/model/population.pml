/* The end of the members: Registry::Admit and Retire against Shutdown's
   BeginClosing and AwaitPopulation, without the deadline of 50 ms that
   Shutdown's loop gives each AwaitPopulation. Memory is SC: population_ and
   closing_ are written by seq_cst operations.
   Code: thread/registry, runtime.cc.

   Shown: Shutdown is not left asleep when the last member has left; nobody is
   admitted after it returned.

   Broken twins:
     -DCLOSING_READ_FIRST  Retire reads closing_ before it counts itself out
     -DLOOK_THEN_CLOSE     Shutdown reads the population, then sets closing_
     -DADMIT_LOOKS_FIRST   Admit reads closing_ before it counts itself in
     -DREFUSED_SILENTLY    a refused Admit wakes nobody
     -DWAKE_ONE            with -DSHUTDOWNS=2 (two at once): Retire wakes only
                           one of them
                           (no bug of the code, whose waits end after 50 ms) */
#ifndef MEMBERS
#define MEMBERS 3
#endif
#ifndef SHUTDOWNS
#define SHUTDOWNS 1
#endif

byte population_;
bool closing_;
bool waiting[SHUTDOWNS];
byte members;  /* ghost */
bool finished; /* ghost: a Shutdown returned */

/* FutexWake(population_, INT32_MAX); the twin wakes one */
inline Wake() {
  atomic {
#if SHUTDOWNS > 1
#ifdef WAKE_ONE
    if
    :: waiting[0] -> waiting[0] = false
    :: waiting[1] -> waiting[1] = false
    :: else
    fi
#else
    waiting[0] = false;
    waiting[1] = false
#endif
#else
    waiting[0] = false
#endif
  }
}

proctype member() {
  bool closing;
  /* Admit */
#ifdef ADMIT_LOOKS_FIRST
  closing = closing_;
  population_++;
#else
  population_++;
  closing = closing_;
#endif
  if
  :: closing ->
     population_--;
#ifndef REFUSED_SILENTLY
     Wake()
#endif
  :: else ->
     atomic { assert(!finished); members++ };
     members--;
     /* Retire */
#ifdef CLOSING_READ_FIRST
     closing = closing_;
     population_--;
#else
     population_--;
     closing = closing_;
#endif
     if :: closing -> Wake() :: else fi
  fi
}

proctype shutdown(byte me) {
  byte now;
#ifdef LOOK_THEN_CLOSE
  now = population_;
  closing_ = true;
  goto looked;
#else
  closing_ = true;
#endif
  do
  :: now = population_;
looked:
     if :: now == 0 -> break :: else fi;
     waiting[me] = (population_ == now);
     !waiting[me]
  od;
  atomic { assert(members == 0); finished = true }
}

init {
  byte i;
  atomic {
    do :: i < MEMBERS -> run member(); i++ :: else -> i = 0; break od;
    do :: i < SHUTDOWNS -> run shutdown(i); i++ :: else -> i = 0; break od
  }
}
