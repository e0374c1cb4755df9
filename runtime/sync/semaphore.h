// A counting semaphore.

#ifndef STILLPOINT_RUNTIME_SYNC_SEMAPHORE_H_
#define STILLPOINT_RUNTIME_SYNC_SEMAPHORE_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/clock.h"

namespace stillpoint {

// Permits that are acquired and released, by the same threads or by others. For
// threads of any runtime and unattached ones.
//
// Strictly first come, first served: while threads wait, a released permit is
// the first one's, and nobody can be quicker. So a stopped thread may have a
// permit, as it may have a Mutex: an operation at a safepoint only tries.
//
// Constant-initialized, and needs no destruction. Its memory may go when nobody
// waits and no call is going on but Releases whose permit has been acquired.
class Semaphore {
 public:
  explicit constexpr Semaphore(uint32_t permits)
      : word_(uint64_t{permits} * kOne) {}
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;

  // Takes a permit; waits for one if there is none. A Managed caller is Blocked
  // meanwhile, and this is a poll for it.
  // Errors: Cancelled ("Interrupted …") when interrupted while it waits, which
  // takes the interrupt; DeadlineExceeded; FailedPrecondition, at once, from a
  // VM operation, in the closure of a handshake, with a ranked lock held, or
  // inside a NoSafepointScope.
  [[nodiscard]] absl::Status Acquire(Deadline deadline = Deadline::Infinite());

  // Takes a permit if there is one. Any state and any place.
  [[nodiscard]] bool TryAcquire();

  // Gives permits. Any state and any place; never waits.
  void Release(uint32_t permits = 1);

  // A glance. Any state.
  uint32_t available() const {
    // relaxed (M77): a number.
    return static_cast<uint32_t>(word_.load(std::memory_order_relaxed) / kOne);
  }

 private:
  static constexpr uint64_t kWaited = 1;  // there is a queue in the lot
  static constexpr uint64_t kOne = 2;

  std::atomic<uint64_t> word_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SYNC_SEMAPHORE_H_
