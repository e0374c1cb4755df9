// One wait of the calling thread for something that another thread does: what
// the parking lot and channels have in common. Internal.

#ifndef STILLPOINT_RUNTIME_SYNC_WAITER_H_
#define STILLPOINT_RUNTIME_SYNC_WAITER_H_

#include <atomic>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/base/clock.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/wait_word.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

// What may end a wait besides its event.
struct WaitLimits {
  Deadline deadline = Deadline::Infinite();
  bool interruptible = true;
};

enum class WaitResult { kDone, kInterrupted, kTimedOut };

// kInterrupted: Cancelled; kTimedOut: DeadlineExceeded. `what` as in "Receive".
absl::Status WaitError(WaitResult result, std::string_view what);

// Lives on the waiter's stack, for one wait. "The lock" is the leaf that guards
// the list that it is in: the same one for both sides.
class Waiter {
 public:
  explicit Waiter(Thread* current)
      : thread_(current),
        word_(current != nullptr ? current->record().wait : own_) {}
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  Thread* thread() const { return thread_; }

  // Who waits no more for this waiter, holding the lock, and having taken it
  // out of its list: it is done. The last touch: the waiter may return before
  // the lock is given up.
  [[nodiscard]] WakeUp Complete() {
    const WakeUp wake_up = word_.SetQuietly(WaitWord::kEvent);
    // release (M71): with "done" the waiter sees what it was woken for. After
    // the event, since an unattached waiter takes its word with it.
    done_.store(true, std::memory_order_release);
    return wake_up;
  }

  // acquire (M71): pairs with Complete. With the lock held, or after kDone.
  bool done() const { return done_.load(std::memory_order_acquire); }

  // The waiter itself, with no lock held: becomes Blocked, and waits. kDone:
  // Complete() has been called; whoever did may still hold the lock. Otherwise
  // the caller takes the lock and looks at done(): if that is true it is done
  // all the same, else the caller takes it out of its list, and the wait is
  // over (an interrupt is to be taken by TakeInterrupt()).
  // `get_behind` waits until who is in Complete() at the time of the call has
  // given up the lock.
  WaitResult Wait(WaitingFor what, const WaitLimits& limits,
                  absl::FunctionRef<void()> get_behind);
  WaitResult Wait(WaitingFor what, const WaitLimits& limits,
                  RankedMutex& lock) {
    return Wait(what, limits, [&lock] { RankedMutexLock behind(lock); });
  }

  void TakeInterrupt() { word_.Take(WaitWord::kInterrupt); }

 private:
  Thread* const thread_;
  WaitWord own_;  // of a thread that is not attached
  WaitWord& word_;
  std::atomic<bool> done_{false};
};

// What guards a list of waiters: a leaf, inside a NoSafepointScope.
class ABSL_SCOPED_LOCKABLE LeafLock {
 public:
  explicit LeafLock(RankedMutex& lock) ABSL_EXCLUSIVE_LOCK_FUNCTION(lock)
      : lock_(lock) {}
  ~LeafLock() ABSL_UNLOCK_FUNCTION() {}
  LeafLock(const LeafLock&) = delete;
  LeafLock& operator=(const LeafLock&) = delete;

 private:
  const NoSafepointScope no_safepoint_;
  const RankedMutexLock lock_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SYNC_WAITER_H_
