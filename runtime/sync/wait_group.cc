#include "runtime/sync/wait_group.h"

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

void WaitGroup::Add(uint32_t count) {
  // relaxed (M76): hands nothing over, and continues what a Done has released.
  const uint64_t before =
      word_.fetch_add(uint64_t{count} * kOne, std::memory_order_relaxed);
  STILLPOINT_CHECK(before / kOne + count <= UINT32_MAX,
                   "WaitGroup::Add goes beyond 2^32 - 1");
}

void WaitGroup::Done() {
  // relaxed, acq_rel (M76): a Done releases what was done; the last one has
  // acquired what the others released, and hands on all of it.
  uint64_t seen = word_.load(std::memory_order_relaxed);
  while (true) {
    STILLPOINT_CHECK(seen >= kOne,
                     "WaitGroup::Done is called once more than Add said");
    if (seen != (kOne | kWaited)) {
      if (word_.compare_exchange_weak(seen, seen - kOne,
                                      std::memory_order_acq_rel,
                                      std::memory_order_relaxed)) {
        return;
      }
      continue;
    }
    // The last one, with threads waiting. Under the lock, so that those who
    // wait for the next time are not among them. Afterwards the group may be
    // gone.
    // acq_rel, relaxed (M76): as above.
    bool done = false;
    ParkingLot::UnparkAll(this, [&] {
      done = word_.compare_exchange_strong(seen, 0, std::memory_order_acq_rel,
                                           std::memory_order_relaxed);
      return done;
    });
    if (done) return;
  }
}

absl::Status WaitGroup::Wait(Deadline deadline) {
  if (absl::Status allowed = CheckMayWait("WaitGroup::Wait"); !allowed.ok()) {
    return allowed;
  }
  if (count() == 0) return absl::OkStatus();
  const ParkingLot::Result result = ParkingLot::Park(
      Thread::Current(), WaitingFor(WaitKind::kWaitGroup, this),
      ParkingLot::Place::kBack, {.deadline = deadline},
      {.validate =
           [this] {
             // acquire (M76): as in count().
             uint64_t seen = word_.load(std::memory_order_acquire);
             while (seen >= kOne) {
               if (word_.compare_exchange_weak(seen, seen | kWaited,
                                               std::memory_order_acquire)) {
                 return true;
               }
             }
             return false;
           },
       .given_up =
           [this](bool more) {
             // relaxed (M76): as above.
             if (!more) word_.fetch_and(~kWaited, std::memory_order_relaxed);
           }});
  switch (result) {
    case ParkingLot::Result::kNotParked:
    case ParkingLot::Result::kUnparked:
      break;
    case ParkingLot::Result::kInterrupted:
      return WaitError(WaitResult::kInterrupted, "WaitGroup::Wait");
    case ParkingLot::Result::kTimedOut:
      return WaitError(WaitResult::kTimedOut, "WaitGroup::Wait");
  }
  return absl::OkStatus();
}

}  // namespace stillpoint
