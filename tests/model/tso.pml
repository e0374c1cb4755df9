/* x86's memory (TSO) and the futex, for the other models; not run alone.
   A model defines NT (threads), NADDR (addresses) and SB (store buffer
   entries, 1 or 2) and includes this file.

   Each thread has a FIFO store buffer that a daemon drains entry by entry. A
   load sees the thread's own youngest store first. A locked instruction, a
   fence and a system call empty the thread's own buffer first. membarrier(2)
   empties every other thread's, each at some moment within the call. */

typedef Buf { byte n; byte a[SB]; byte v[SB] };
byte mem[NADDR];
Buf sb[NT];
byte waiting[NT]; /* the futex a thread sleeps on: its address + 1; 0: awake */

/* --- Without a step of their own: for use inside atomic or d_step. --- */

inline look(t, adr, res) {
  if
  :: sb[t].n == 2 && sb[t].a[SB - 1] == adr -> res = sb[t].v[SB - 1]
  :: else ->
     if
     :: sb[t].n >= 1 && sb[t].a[0] == adr -> res = sb[t].v[0]
     :: else -> res = mem[adr]
     fi
  fi
}
inline drain1(t) {
  mem[sb[t].a[0]] = sb[t].v[0];
  if
  :: sb[t].n == 2 ->
     sb[t].a[0] = sb[t].a[SB - 1];
     sb[t].v[0] = sb[t].v[SB - 1]
  :: else
  fi;
  sb[t].n--;
  sb[t].a[sb[t].n] = 0;
  sb[t].v[sb[t].n] = 0
}
inline drain_all(t) { do :: sb[t].n > 0 -> drain1(t) :: else -> break od }

/* --- One step each. --- */

/* A plain store: relaxed or release. */
inline ST(t, adr, val) {
  d_step {
    sb[t].n < SB ->
    sb[t].a[sb[t].n] = adr;
    sb[t].v[sb[t].n] = val;
    sb[t].n++
  }
}
/* A plain load: relaxed or acquire. */
inline LD(t, adr, res) { d_step { look(t, adr, res) } }
inline FENCE(t) { d_step { drain_all(t); skip } }
/* Read-modify-writes. */
inline XCHG(t, adr, val, res) {
  d_step { drain_all(t); res = mem[adr]; mem[adr] = val }
}
inline OR(t, adr, bits) { d_step { drain_all(t); mem[adr] = mem[adr] | bits } }

inline MEMBARRIER(t, k) {
  FENCE(t);
  k = 0;
  do
  :: k < NT -> d_step { drain_all(k); k++ }
  :: else -> k = 0; break
  od
}

/* The kernel's compare and its queueing are one step against a wake-up, and
   both sides pass a full barrier. */
inline FUTEX_WAIT(t, adr, val) {
  d_step {
    drain_all(t);
    if :: mem[adr] == val -> waiting[t] = adr + 1 :: else fi;
    skip
  };
  waiting[t] == 0
}
/* With a deadline, which may pass at any moment. */
inline FUTEX_WAIT_TIMED(t, adr, val) {
  d_step {
    drain_all(t);
    if :: mem[adr] == val -> waiting[t] = adr + 1 :: else fi;
    skip
  };
  if
  :: waiting[t] == 0
  :: d_step { waiting[t] != 0 -> waiting[t] = 0 }
  fi
}
inline FUTEX_WAKE_ALL(t, adr, k) {
  d_step {
    drain_all(t);
    k = 0;
    do
    :: k < NT ->
       if :: waiting[k] == adr + 1 -> waiting[k] = 0 :: else fi;
       k++
    :: else -> k = 0; break
    od;
    skip
  }
}

active [NT] proctype drain() { /* _pid is 0 .. NT - 1 */
end:
  do
  :: d_step { sb[_pid].n > 0 -> drain1(_pid) }
  od
}
