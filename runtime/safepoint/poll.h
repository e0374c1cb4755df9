// The poll: where a mutator stops.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_POLL_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_POLL_H_

#include <atomic>

#include "runtime/base/check.h"
#include "runtime/base/tls_block.h"
#include "runtime/thread/thread.h"

namespace stillpoint {

// The slow path of Poll, for code that a JIT emits: leaves Managed, waits while
// a stop is on, comes back. Caller: the thread itself, in Managed.
void PollSlow(Thread& thread);

// Stops here if somebody asked for it. One load and one predicted branch.
// Caller: `thread` itself, in Managed, at a place where its roots are where the
// collector looks. Call it on every loop's back edge and at function entry:
// between two polls a thread delays every safepoint. May block for the length
// of a stop. Debug builds die if the thread is not in Managed or is inside a
// NoSafepointScope.
[[gnu::always_inline]] inline void Poll(Thread& thread) {
  STILLPOINT_DCHECK(thread.state() == ThreadState::kManaged, "Poll in ",
                    ThreadStateName(thread.state()),
                    ": only a Managed thread polls; open a ManagedScope");
  STILLPOINT_DCHECK(tls_block.no_safepoint_depth == 0,
                    "Poll inside a NoSafepointScope: the thread may not stop "
                    "there");
  // relaxed (M25): a late look costs time, not correctness; the slow path
  // orders.
  if (thread.poll_word().load(std::memory_order_relaxed) != 0) [[unlikely]] {
    PollSlow(thread);
  }
}

// The same for the calling thread; one more load.
[[gnu::always_inline]] inline void Poll() { Poll(Thread::CurrentOrDie()); }

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_POLL_H_
