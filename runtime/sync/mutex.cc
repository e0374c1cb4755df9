#include "runtime/sync/mutex.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/sync/parking_lot.h"
#include "runtime/sync/waiter.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/wait_check.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

// The word changes by compare-exchange. Besides that, kParked is set and
// cleared under the lock of the bucket only: set, if and only if there is a
// queue. kWoken is set by the unlocking owner who lets one go, under that lock,
// and cleared by the one who was let go: with his taking the mutex, or before
// he waits again. So a mutex that is free and has a queue has kWoken, and
// whoever that stands for is about to look at it.
//
// M72, here and in the header: taking is an acquire, freeing a release. All
// other changes are read-modify-writes, which hand on what a release before
// them has published, and need no order of their own.

std::string_view Mutex::Label() const {
  return name().empty() ? std::string_view("without a name") : name();
}

void Mutex::CheckMayLock() const {
  if (MayWait()) [[likely]]
    return;
  const absl::Status why = CheckMayWait("Mutex::Lock");
  STILLPOINT_CHECK(
      why.ok(), std::string_view(why.message().data(), why.message().size()));
}

void Mutex::AssertHeld() const {
  STILLPOINT_DCHECK(HeldByCaller(), "mutex ", Label(),
                    " is not owned by the thread that needs it here");
}

bool Mutex::TryLock() {
  const uintptr_t self = Self();
  // acquire, relaxed (M72): as in Lock.
  uintptr_t seen = word_.load(std::memory_order_relaxed);
  while ((seen & ~kFlags) == kFree) {
    if (!word_.compare_exchange_weak(seen, seen | self,
                                     std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      continue;
    }
    if (seen != kFree) NoteOvertaking(1);
    return true;
  }
  return false;
}

// relaxed (M73): a count that decides who may be quick.
void Mutex::NoteOvertaking(uint32_t weight) {
  overtakes_.fetch_add(weight, std::memory_order_relaxed);
}

// relaxed (M73): as above.
bool Mutex::MayOvertake() const {
  return overtakes_.load(std::memory_order_relaxed) < kMaxOvertakes;
}

bool Mutex::TryTake(uintptr_t self, bool woken) {
  // acquire, relaxed (M72): as in Lock.
  uintptr_t seen = word_.load(std::memory_order_relaxed);
  while ((seen & ~kFlags) == kFree) {
    const bool overtakes = !woken && seen != kFree;
    if (overtakes && !MayOvertake()) return false;
    const uintptr_t flags = woken ? seen & kParked : seen;
    if (!word_.compare_exchange_weak(seen, self | flags,
                                     std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      continue;
    }
    if (overtakes) NoteOvertaking(1);
    // relaxed (M73): as above.
    if (woken) overtakes_.store(0, std::memory_order_relaxed);
    return true;
  }
  return false;
}

bool Mutex::PrepareToPark(bool woken) {
  // relaxed (M72): flags only; see above.
  uintptr_t seen = word_.load(std::memory_order_relaxed);
  while (true) {
    const bool is_free = (seen & ~kFlags) == kFree;
    if (is_free && (woken || seen == kFree || MayOvertake())) return false;
    const uintptr_t wanted = (woken ? seen & ~kWoken : seen) | kParked;
    if (word_.compare_exchange_weak(seen, wanted, std::memory_order_relaxed)) {
      // Where the mutex is held for long, each newcomer costs the waiter that.
      if (woken) NoteOvertaking(kMaxOvertakes / kMaxVainTries);
      return true;
    }
  }
}

absl::Status Mutex::LockWithin(uintptr_t self, Deadline deadline,
                               bool interruptible) {
  STILLPOINT_CHECK(!HeldByCaller(), "mutex ", Label(),
                   " is locked again by the thread that owns it");
  if (TryTake(self, /*woken=*/false)) return absl::OkStatus();
  if (absl::Status allowed = CheckMayWait("Mutex::Lock"); !allowed.ok()) {
    return allowed;
  }
  Thread* const current = Thread::Current();
  bool woken = false;
  do {
    const ParkingLot::Result result = ParkingLot::Park(
        current, WaitingFor(WaitKind::kMutex, this),
        woken ? ParkingLot::Place::kFront : ParkingLot::Place::kBack,
        {.deadline = deadline, .interruptible = interruptible},
        {.validate = [&] { return PrepareToPark(woken); },
         .given_up =
             [&](bool more) {
               if (more) return;
               // relaxed (M72): as in PrepareToPark.
               word_.fetch_and(~kParked, std::memory_order_relaxed);
             }});
    switch (result) {
      case ParkingLot::Result::kNotParked:
        break;
      case ParkingLot::Result::kUnparked:
        woken = true;
        break;
      case ParkingLot::Result::kInterrupted:
        return WaitError(WaitResult::kInterrupted, "Mutex::Lock");
      case ParkingLot::Result::kTimedOut:
        return WaitError(WaitResult::kTimedOut, "Mutex::Lock");
    }
  } while (!TryTake(self, woken));
  return absl::OkStatus();
}

void Mutex::LockSlowly(uintptr_t self) {
  const absl::Status locked =
      LockWithin(self, Deadline::Infinite(), /*interruptible=*/false);
  STILLPOINT_CHECK(
      locked.ok(), "mutex ", Label(), " is owned by somebody else: ",
      std::string_view(locked.message().data(), locked.message().size()));
}

absl::Status Mutex::LockInterruptibly(Deadline deadline)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if constexpr (kDebugChecks) {
    if (!MayWait()) {
      if (absl::Status why = CheckMayWait("Mutex::Lock"); !why.ok()) return why;
    }
  }
  return LockWithin(Self(), deadline, /*interruptible=*/true);
}

void Mutex::UnlockSlowly(uintptr_t self) {
  // release, relaxed (M72): as in Unlock.
  uintptr_t seen = word_.load(std::memory_order_relaxed);
  while (true) {
    STILLPOINT_CHECK((seen & ~kFlags) == self, "mutex ", Label(),
                     " is unlocked by a thread that does not own it");
    // Somebody to let go, and nobody on the way already?
    if ((seen & kFlags) == kParked) break;
    if (word_.compare_exchange_weak(seen, seen & kFlags,
                                    std::memory_order_release,
                                    std::memory_order_relaxed)) {
      return;
    }
  }
  ParkingLot::UnparkOne(this, [this](bool found, bool more) {
    // Nobody but the owner and the holder of the lock changes it, and that is
    // this thread. release (M72): as in Unlock.
    const uintptr_t wanted = (found ? kWoken : kFree) | (more ? kParked : 0);
    word_.store(wanted, std::memory_order_release);
  });
}

std::optional<Mutex::Owner> Mutex::owner() const {
  // relaxed (M72): a glance.
  const uintptr_t owner = word_.load(std::memory_order_relaxed) & ~kFlags;
  if (owner == kFree) return std::nullopt;
  Owner found;
  found.mutex_name = name_;
  if ((owner & kUnattached) == 0) {
    found.thread = reinterpret_cast<const Thread*>(owner);
  }
  return found;
}

std::optional<Mutex::Owner> Mutex::OwnerOfAwaited(WaitingFor waiting_for) {
  std::optional<Owner> found;
  if (waiting_for.kind() != WaitKind::kMutex) return found;
  ParkingLot::WhileAwaited(waiting_for, [&] {
    found = static_cast<const Mutex*>(waiting_for.object())->owner();
  });
  return found;
}

}  // namespace stillpoint
