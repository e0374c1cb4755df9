// Suspended threads: the count, and the owner's wait. Who may suspend, and the
// wait for the target, are in safepoint/suspend.h.

#ifndef STILLPOINT_RUNTIME_THREAD_SUSPENSION_H_
#define STILLPOINT_RUNTIME_THREAD_SUSPENSION_H_

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"

namespace stillpoint {

// Whether `thread` may not go on to managed code. The owner looks on its way
// there, after it has disarmed and has run what was asked of it. For others a
// glance.
inline bool IsSuspended(const Thread& thread) {
  // acquire (M62): with the poll bit that sends the owner here comes the count
  // that was raised before.
  return thread.record().suspend_count.load(std::memory_order_acquire) != 0;
}

// The owner, in a safe state: returns when it is suspended no more. Ended by a
// resume, and by a shutdown.
void AwaitResume(Thread& self);

// The suspensions of one runtime's threads. Targets are pinned, or members that
// cannot end. Any state; never waits.
class Suspensions {
 public:
  enum class Attempt {
    kCounted,
    kCallerSuspended,  // nothing done: the caller has to be resumed first
    kClosed,           // nothing done: the runtime is being shut down
  };

  // Raises the target's count and arms its poll word. From then on the target
  // comes to managed code only past a look at the count; whether it is there
  // now, a handshake has to find out. `caller` (may be null) is refused while
  // it is suspended itself: so of several that suspend each other one goes on.
  Attempt Try(const Thread* caller, Thread& target);

  // Takes one suspension back; the last one wakes the target. False, with
  // nothing done, if it is not suspended.
  bool Resume(Thread& target);

  // Takes all of them back, whoever asked for them.
  void Lift(Thread& target);

  // No new ones from now on.
  void Close();

  void ResetInForkedChild() { lock_.ResetInForkedChild(); }

 private:
  RankedMutex lock_{kSuspendLockRank};
  bool closed_ ABSL_GUARDED_BY(lock_) = false;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_SUSPENSION_H_
