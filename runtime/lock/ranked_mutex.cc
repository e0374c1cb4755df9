#include "runtime/lock/ranked_mutex.h"

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/lock/held_locks.h"
#include "runtime/os/futex.h"

namespace stillpoint {

void RankedMutex::Lock() {
  CheckMayWaitFor(*this);
  uint32_t seen = kFree;
  // acquire (M21): pairs with the release in Unlock, so that the last holder's
  // writes are seen. A failed exchange needs no order.
  if (!word_.compare_exchange_strong(seen, kHeld, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
    // Once contended it is taken as contended: others may sleep behind us.
    while (word_.exchange(kContended, std::memory_order_acquire) != kFree) {
      FutexWait(word_, kContended, Deadline::Infinite());
    }
  }
  PushHeldLock(*this);
}

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

void RankedMutex::Unlock() {
  PopHeldLock(*this);
  // release (M21): pairs with the acquires above. The kernel's compare in
  // FutexWait makes a sleeper that came in between look again.
  if (word_.exchange(kFree, std::memory_order_release) == kContended) {
    FutexWake(word_, 1);
  }
}

}  // namespace stillpoint
