// A mutex with a rank.

#ifndef STILLPOINT_RUNTIME_LOCK_RANKED_MUTEX_H_
#define STILLPOINT_RUNTIME_LOCK_RANKED_MUTEX_H_

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "runtime/base/clock.h"
#include "runtime/base/tls_block.h"
#include "runtime/lock/held_locks.h"
#include "runtime/lock/lock_rank.h"

namespace stillpoint {

// Plain and unfair: whoever finds it free takes it, woken or not. Not
// recursive. Four bytes of futex word beside the rank.
//
// It is *waited for* only in a safe state (a leaf of lock_rank.h also in
// Managed), and never held across a transition, a
// poll, or a wait for anything but a lock of larger rank; a breach dies with
// a sentence in every build, at the wait, the transition or the stop that it
// would spoil; requests to the runtime are refused by a status. So a stopped
// thread holds none, and a safe thread that holds one gives it back without
// needing the world.
class ABSL_LOCKABLE RankedMutex : public RankedLock {
 public:
  // `rank` must have static storage: an entry of lock_rank.h, or an embedder's
  // own with a rank of kFirstEmbedderRank or more.
  explicit constexpr RankedMutex(const LockRank& rank) : RankedLock(rank) {}

  // Blocks until the mutex is the caller's. Caller: attached thread in a safe
  // state, VM thread, or unattached thread. Not interruptible: holders never
  // wait for anything but inner locks.
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    // Of a leaf, and with no lock held, there is nothing to check.
    if (tls_block.held_count != 0 || !leaf()) CheckMayWaitFor(*this);
    uint32_t seen = kFree;
    // acquire (M21): pairs with the release in Unlock, so that the last
    // holder's writes are seen. A failed exchange needs no order.
    if (!word_.compare_exchange_strong(seen, kHeld, std::memory_order_acquire,
                                       std::memory_order_relaxed))
        [[unlikely]] {
      WaitAndTake(Deadline::Infinite());
    }
    PushHeldLock(*this);
  }

  // The same until `deadline`; false if it was not the caller's by then.
  bool LockUntil(Deadline deadline) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);

  // Takes it if it is free. Any state, any order; a Managed caller keeps it for
  // a short region inside a NoSafepointScope.
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);

  void Unlock() ABSL_UNLOCK_FUNCTION() {
    PopHeldLock(*this);
    // release (M21): pairs with the acquires of who takes it. The kernel's
    // compare in FutexWait makes a sleeper that came in between look again.
    if (word_.exchange(kFree, std::memory_order_release) == kContended)
        [[unlikely]] {
      WakeOne();
    }
  }

  // In the child of a fork, where its holder, if any, does not exist: makes it
  // free.
  void ResetInForkedChild() {
    // relaxed (M30): there is no other thread.
    word_.store(kFree, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kContended = 2;  // held, and somebody may sleep

  bool WaitAndTake(Deadline deadline);
  // By the address alone: the mutex may be gone.
  void WakeOne();

  std::atomic<uint32_t> word_{kFree};
};

class ABSL_SCOPED_LOCKABLE RankedMutexLock {
 public:
  explicit RankedMutexLock(RankedMutex& mutex)
      ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~RankedMutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  RankedMutexLock(const RankedMutexLock&) = delete;
  RankedMutexLock& operator=(const RankedMutexLock&) = delete;

 private:
  RankedMutex& mutex_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_LOCK_RANKED_MUTEX_H_
