// Wait until so many things are done.

#ifndef STILLPOINT_RUNTIME_SYNC_WAIT_GROUP_H_
#define STILLPOINT_RUNTIME_SYNC_WAIT_GROUP_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/clock.h"

namespace stillpoint {

// A count of things that are still to be done, and threads that wait until
// there are none. For threads of any runtime and unattached ones.
//
// Constant-initialized, and needs no destruction. Its memory may go as soon as
// a Wait has returned OK, although the last Done may not have returned: that is
// how a group on the stack of the waiting thread ends.
class WaitGroup {
 public:
  explicit constexpr WaitGroup(uint32_t count = 0)
      : word_(uint64_t{count} * kOne) {}
  WaitGroup(const WaitGroup&) = delete;
  WaitGroup& operator=(const WaitGroup&) = delete;

  // So many more. Any state; never waits. Before the Done that could bring the
  // count to 0, or else waiting threads may have gone on by then.
  void Add(uint32_t count = 1);

  // One less; who waits sees what was done before. Any state; never waits. Dies
  // with a sentence if there is nothing left to be done.
  void Done();

  // Waits until the count is 0, or has been since the call. At once if it is. A
  // Managed caller is Blocked meanwhile, and this is a poll for it.
  // Errors: Cancelled ("Interrupted …") when interrupted while it waits, which
  // takes the interrupt; DeadlineExceeded; FailedPrecondition, at once, from a
  // VM operation, in the closure of a handshake, with a ranked lock held, or
  // inside a NoSafepointScope.
  [[nodiscard]] absl::Status Wait(Deadline deadline = Deadline::Infinite());

  // A glance. Any state.
  uint32_t count() const {
    // acquire (M76): who finds 0 sees what was done.
    return static_cast<uint32_t>(word_.load(std::memory_order_acquire) / kOne);
  }

 private:
  static constexpr uint64_t kWaited = 1;  // there is a queue in the lot
  static constexpr uint64_t kOne = 2;

  std::atomic<uint64_t> word_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SYNC_WAIT_GROUP_H_
