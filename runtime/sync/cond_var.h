// A condition variable for Mutex.

#ifndef STILLPOINT_RUNTIME_SYNC_COND_VAR_H_
#define STILLPOINT_RUNTIME_SYNC_COND_VAR_H_

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/clock.h"
#include "runtime/sync/mutex.h"

namespace stillpoint {

// For threads of any runtime and unattached ones. Waiters are let go in the
// order of their arrival, and for no other reason than a notification, an
// interrupt or a deadline: there are no spurious wake-ups. The condition still
// has to be looked at in a loop (or by Await), since others may have had the
// mutex in between.
//
// Constant-initialized, and needs no destruction. Nobody may wait when its
// memory goes; waiters that have been notified do not touch it any more.
class CondVar {
 public:
  constexpr CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Gives `mutex` up, waits for a notification, and locks the mutex again, in
  // every case (that is a second wait, which nothing ends early). Giving up and
  // beginning to wait are one step: no notification by whoever has the mutex
  // next is missed. The caller owns the mutex, once; a Managed caller is
  // Blocked meanwhile, and this is a poll for it.
  // OK: notified; each NotifyOne makes one wait end so. An interrupt that comes
  // with the notification stays pending.
  // Errors, for which no notification was used up: Cancelled ("Interrupted
  // …"), which takes the interrupt, also one that is pending when it begins;
  // DeadlineExceeded; FailedPrecondition, at once, from a VM operation, with a
  // ranked lock held, or inside a NoSafepointScope.
  [[nodiscard]] absl::Status Wait(Mutex& mutex,
                                  Deadline deadline = Deadline::Infinite())
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // The same, but no interrupt ends it; one stays pending. Dies with a sentence
  // where Wait would refuse.
  void WaitUninterruptibly(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Waits until `condition()` holds, which is asked with the mutex held. Errors
  // as of Wait; none if the condition holds in the end.
  template <typename Condition>
  [[nodiscard]] absl::Status Await(Mutex& mutex, Condition condition,
                                   Deadline deadline = Deadline::Infinite())
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    while (!condition()) {
      if (absl::Status waited = Wait(mutex, deadline); !waited.ok()) {
        return condition() ? absl::OkStatus() : waited;
      }
    }
    return absl::OkStatus();
  }

  // Lets the first waiter go, if any, or all that wait now. Any thread, any
  // state, an operation included; never waits. With the mutex or without it;
  // what the waiters look at is changed with it, as always.
  void NotifyOne();
  void NotifyAll();

 private:
  absl::Status WaitWithin(Mutex& mutex, Deadline deadline, bool interruptible)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Whether there may be a queue in the parking lot. Written under the lock of
  // its bucket.
  std::atomic<bool> waited_{false};
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SYNC_COND_VAR_H_
