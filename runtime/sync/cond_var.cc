#include "runtime/sync/cond_var.h"

#include <atomic>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/sync/mutex.h"
#include "runtime/sync/parking_lot.h"
#include "runtime/sync/waiter.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/wait_check.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

// M74: `waited_` is relaxed. Who changes the condition has the mutex after the
// waiter, who set it with the mutex held; so if he is to notify that waiter, he
// sees it. Everything else is decided under the lock of the bucket.

absl::Status CondVar::WaitWithin(Mutex& mutex, Deadline deadline,
                                 bool interruptible)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (absl::Status allowed = CheckMayWait("CondVar::Wait"); !allowed.ok()) {
    return allowed;
  }
  STILLPOINT_CHECK(mutex.HeldByCaller(),
                   "CondVar::Wait needs the mutex to be owned by the caller");
  const ParkingLot::Result result = ParkingLot::Park(
      Thread::Current(), WaitingFor(WaitKind::kCondVar, this),
      ParkingLot::Place::kBack,
      {.deadline = deadline, .interruptible = interruptible},
      {.validate =
           [&] {
             // relaxed (M74), as below: see above.
             waited_.store(true, std::memory_order_relaxed);
             return true;
           },
       .before_wait = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Unlock(); },
       .given_up =
           [&](bool more) {
             if (!more) waited_.store(false, std::memory_order_relaxed);
           }});
  mutex.Lock();
  switch (result) {
    case ParkingLot::Result::kNotParked:
    case ParkingLot::Result::kUnparked:
      break;
    case ParkingLot::Result::kInterrupted:
      return WaitError(WaitResult::kInterrupted, "CondVar::Wait");
    case ParkingLot::Result::kTimedOut:
      return WaitError(WaitResult::kTimedOut, "CondVar::Wait");
  }
  return absl::OkStatus();
}

absl::Status CondVar::Wait(Mutex& mutex, Deadline deadline) {
  return WaitWithin(mutex, deadline, /*interruptible=*/true);
}

void CondVar::WaitUninterruptibly(Mutex& mutex) {
  const absl::Status waited =
      WaitWithin(mutex, Deadline::Infinite(), /*interruptible=*/false);
  STILLPOINT_CHECK(waited.ok(), std::string_view(waited.message().data(),
                                                 waited.message().size()));
}

void CondVar::NotifyOne() {
  // relaxed (M74): see above.
  if (!waited_.load(std::memory_order_relaxed)) return;
  ParkingLot::UnparkOne(this, [this](bool, bool more) {
    if (!more) waited_.store(false, std::memory_order_relaxed);
  });
}

void CondVar::NotifyAll() {
  // relaxed (M74): see above.
  if (!waited_.load(std::memory_order_relaxed)) return;
  // Those that come while this goes on set it again.
  ParkingLot::UnparkAll(this, [this] {
    waited_.store(false, std::memory_order_relaxed);
    return true;
  });
}

}  // namespace stillpoint
