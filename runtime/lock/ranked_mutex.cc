#include "runtime/lock/ranked_mutex.h"

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/lock/held_locks.h"
#include "runtime/os/futex.h"

namespace stillpoint {

bool RankedMutex::WaitAndTake(Deadline deadline) {
  // Once contended it is taken as contended: others may sleep behind us.
  // acquire (M21): as in Lock.
  while (word_.exchange(kContended, std::memory_order_acquire) != kFree) {
    if (FutexWait(word_, kContended, deadline) == FutexResult::kTimedOut) {
      // The word may say contended with nobody asleep: one needless wake-up.
      return false;
    }
  }
  return true;
}

bool RankedMutex::LockUntil(Deadline deadline) {
  CheckMayWaitFor(*this);
  if (TryLock()) return true;
  if (!WaitAndTake(deadline)) return false;
  PushHeldLock(*this);
  return true;
}

void RankedMutex::WakeOne() { FutexWake(word_, 1); }

bool RankedMutex::TryLock() {
  uint32_t seen = kFree;
  // acquire, relaxed (M21): as in Lock.
  if (!word_.compare_exchange_strong(seen, kHeld, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
    return false;
  }
  PushHeldLock(*this);
  return true;
}

}  // namespace stillpoint
