#include "runtime/sync/semaphore.h"

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/sync/parking_lot.h"
#include "runtime/sync/waiter.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/wait_check.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

// While there is a queue there is no permit: one that is given goes to the
// first of the queue, under the lock of the bucket, and past the word.

bool Semaphore::TryAcquire() {
  // acquire, relaxed (M77): pairs with the release of the permit.
  uint64_t seen = word_.load(std::memory_order_relaxed);
  while (seen >= kOne) {
    if (word_.compare_exchange_weak(seen, seen - kOne,
                                    std::memory_order_acquire,
                                    std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

absl::Status Semaphore::Acquire(Deadline deadline) {
  if (absl::Status allowed = CheckMayWait("Semaphore::Acquire");
      !allowed.ok()) {
    return allowed;
  }
  Thread* const current = Thread::Current();
  while (!TryAcquire()) {
    const ParkingLot::Result result = ParkingLot::Park(
        current, WaitingFor(WaitKind::kSemaphore, this),
        ParkingLot::Place::kBack, {.deadline = deadline},
        {.validate =
             [this] {
               // relaxed (M77), also below: the flag hands nothing over.
               uint64_t seen = word_.load(std::memory_order_relaxed);
               while (seen < kOne) {
                 if (word_.compare_exchange_weak(seen, seen | kWaited,
                                                 std::memory_order_relaxed)) {
                   return true;
                 }
               }
               return false;
             },
         .given_up =
             [this](bool more) {
               // relaxed (M77): as above.
               if (!more) word_.fetch_and(~kWaited, std::memory_order_relaxed);
             }});
    switch (result) {
      case ParkingLot::Result::kNotParked:
        break;
      case ParkingLot::Result::kUnparked:
        return absl::OkStatus();  // with a permit
      case ParkingLot::Result::kInterrupted:
        return WaitError(WaitResult::kInterrupted, "Semaphore::Acquire");
      case ParkingLot::Result::kTimedOut:
        return WaitError(WaitResult::kTimedOut, "Semaphore::Acquire");
    }
  }
  return absl::OkStatus();
}

void Semaphore::Release(uint32_t permits) {
  while (permits > 0) {
    // release, relaxed (M77): pairs with TryAcquire.
    uint64_t seen = word_.load(std::memory_order_relaxed);
    if ((seen & kWaited) == 0) {
      STILLPOINT_CHECK(seen / kOne + permits <= UINT32_MAX,
                       "Semaphore::Release goes beyond 2^32 - 1 permits");
      if (word_.compare_exchange_weak(seen, seen + uint64_t{permits} * kOne,
                                      std::memory_order_release,
                                      std::memory_order_relaxed)) {
        return;
      }
      continue;
    }
    ParkingLot::UnparkOne(this, [&](bool found, bool more) {
      if (found) --permits;
      // relaxed (M77): as above.
      if (!more) word_.fetch_and(~kWaited, std::memory_order_relaxed);
    });
  }
}

}  // namespace stillpoint
