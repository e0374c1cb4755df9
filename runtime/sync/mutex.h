// The embedder's mutex.

#ifndef STILLPOINT_RUNTIME_SYNC_MUTEX_H_
#define STILLPOINT_RUNTIME_SYNC_MUTEX_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/tls_block.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

// A mutex for threads of any runtime and for unattached ones. Not recursive.
// Unlike a RankedMutex it is the embedder's own: it may be held across polls,
// transitions, waits and stops. So an operation at a safepoint may only try it:
// its owner may be a stopped thread.
//
// A thread that finds it held is Blocked while it waits, whatever it was, and
// counts as stopped. The mutex is not handed to a waiter: who is woken tries
// again when it is back in its own state, so a thread that a stop holds up on
// its way does not own it.
//
// Fair by counting: whoever comes while others wait may be quicker than they
// (that keeps a mutex fast which is held for a short time), but only
// kMaxOvertakes times in a row, and only until a waiter has been let go
// kMaxVainTries times and has found the mutex taken again; after that newcomers
// queue up, until a waiter has had the mutex. Waiters come in the order of
// their arrival. TryLock alone does not queue.
//
// Constant-initialized, and needs no destruction. It may be destroyed by any
// thread as soon as the unlocking one has let go of it, although Unlock may not
// have returned: the last lock of an object may be that in its destructor's
// caller. Nobody may wait for it then, or hold it.
class ABSL_LOCKABLE Mutex {
 public:
  static constexpr uint32_t kMaxOvertakes = 1024;
  static constexpr uint32_t kMaxVainTries = 4;

  constexpr Mutex() = default;
  // `name`, which must live as long as the mutex, is for dumps.
  explicit constexpr Mutex(const char* name) : name_(name) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Waits until the mutex is the caller's, whatever comes; an interrupt stays
  // pending. Any thread, in Managed (for which a wait is a poll) or in a safe
  // state. It dies with a sentence if the caller has the mutex already, and if
  // it has to wait in a VM operation, in the closure of a handshake, with a
  // ranked lock held, or inside a NoSafepointScope; debug builds die there even
  // if the mutex is free.
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    const uintptr_t self = Self();
    if constexpr (kDebugChecks) CheckMayLock();
    uintptr_t seen = kFree;
    // acquire (M72): pairs with the release of the last owner's unlocking; a
    // failed exchange needs no order.
    if (!word_.compare_exchange_strong(seen, self, std::memory_order_acquire,
                                       std::memory_order_relaxed))
        [[unlikely]] {
      LockSlowly(self);
    }
  }

  // The same, but gives up. The caller has the mutex if the status is OK; tell
  // clang's analysis so by AssertHeld().
  // Errors: Cancelled ("Interrupted …") when interrupted while it waits, which
  // takes the interrupt; DeadlineExceeded; FailedPrecondition where Lock would
  // die, except for the owner. A mutex that is free is taken, whatever the
  // deadline, and in spite of a pending interrupt.
  [[nodiscard]] absl::Status LockInterruptibly(
      Deadline deadline = Deadline::Infinite());

  // Takes the mutex if it is free. Any thread, any state, an operation at a
  // safepoint and a NoSafepointScope included. False also for the owner.
  [[nodiscard]] bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);

  // The owner gives the mutex up; dies with a sentence for any other caller.
  // Never waits; any state. (An owner that was attached and is not any more, or
  // the other way round, is another caller.)
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    const uintptr_t self = Self();
    uintptr_t seen = self;
    // release (M72): pairs with the acquire of the next owner.
    if (!word_.compare_exchange_strong(seen, kFree, std::memory_order_release,
                                       std::memory_order_relaxed))
        [[unlikely]] {
      UnlockSlowly(self);
    }
  }

  // Whether the calling thread owns it. Any state.
  bool HeldByCaller() const {
    // relaxed (M72): if it is the caller, it has written that itself.
    return (word_.load(std::memory_order_relaxed) & ~kFlags) == Self();
  }

  // Dies with a sentence in debug builds unless the calling thread owns it, and
  // tells clang's analysis that it does.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK();

  std::string_view name() const { return name_; }

  // Who has it, and the name of what he has. The Thread tells him apart from
  // others; only one of a runtime that cannot end meanwhile may be looked at.
  struct Owner {
    const Thread* thread = nullptr;  // null: a thread that is not attached
    const char* mutex_name = "";
  };

  // At this moment; nothing if it is free. A glance: for diagnostics.
  std::optional<Owner> owner() const;

  // The owner of the mutex for which some thread, according to `waiting_for`,
  // waits. May be asked from an operation or a handshake about any thread: the
  // mutex is looked at only while somebody is seen to wait for it. Nothing if
  // that is no mutex, or not waited for any more, or free.
  static std::optional<Owner> OwnerOfAwaited(WaitingFor waiting_for);

 private:
  // The word: the owner, a Thread or the thread-local block of a thread that is
  // not attached, and flags in the low bits of the address.
  static constexpr uintptr_t kFree = 0;
  static constexpr uintptr_t kParked = 1;      // threads wait in the lot
  static constexpr uintptr_t kWoken = 2;       // one was let go to try again
  static constexpr uintptr_t kUnattached = 4;  // the owner is no Thread
  static constexpr uintptr_t kFlags = kParked | kWoken;
  static_assert(alignof(Thread) > (kFlags | kUnattached));
  static_assert(alignof(TlsBlock) > (kFlags | kUnattached));

  static uintptr_t Self() {
    const Thread* current = Thread::Current();
    return current != nullptr
               ? reinterpret_cast<uintptr_t>(current)
               : reinterpret_cast<uintptr_t>(&tls_block) | kUnattached;
  }

  void CheckMayLock() const;
  void LockSlowly(uintptr_t self);
  void UnlockSlowly(uintptr_t self);
  absl::Status LockWithin(uintptr_t self, Deadline deadline,
                          bool interruptible);
  bool TryTake(uintptr_t self, bool woken);
  bool PrepareToPark(bool woken);
  bool MayOvertake() const;
  void NoteOvertaking(uint32_t weight);
  std::string_view Label() const;

  std::atomic<uintptr_t> word_{kFree};
  // How often newcomers were quicker than the first waiter.
  std::atomic<uint32_t> overtakes_{0};
  const char* name_ = "";
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SYNC_MUTEX_H_
