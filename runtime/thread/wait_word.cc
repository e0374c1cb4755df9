#include "runtime/thread/wait_word.h"

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/base/tls_block.h"
#include "runtime/os/futex.h"

namespace stillpoint {

// All writers use read-modify-writes, so the word has one order of changes and
// nobody's bit is overwritten. acq_rel on each (M15): release pairs with the
// acquire of the owner that reads the bit; no other location takes part, so
// nothing needs seq_cst.

void WakeUp::Wake() const {
  if (futex_ != nullptr) FutexWakeRaw(futex_, 1);
  if (blocker_ != nullptr) blocker_->MakeReady();
}

void WaitWord::Set(uint32_t bits) { SetQuietly(bits).Wake(); }

WakeUp WaitWord::SetQuietly(uint32_t bits) {
  // relaxed (M15): a guess, which the exchange checks.
  uint32_t before = word_.load(std::memory_order_relaxed);
  // acq_rel (M15): all that came before is seen by who finds the bits. A
  // blocked sleeper is taken by exactly one.
  while (!word_.compare_exchange_weak(before, (before | bits) & ~kBlocked,
                                      std::memory_order_acq_rel,
                                      std::memory_order_relaxed)) {
  }
  if ((before & kBlocked) != 0) return WakeUp(blocked_);
  // Without the sleeping bit the owner looks at the word before it sleeps.
  const bool asleep = (before & kSleeping) != 0 && (before & bits) != bits;
  return asleep ? WakeUp(static_cast<const void*>(&word_)) : WakeUp();
}

bool WaitWord::Announce(Blocker& sleeper, uint32_t mask) {
  blocked_ = &sleeper;
  // acquire (M15): the bits that are found; release: blocked_, for the taker.
  uint32_t before = word_.load(std::memory_order_acquire);
  while ((before & mask) == 0) {
    if (word_.compare_exchange_weak(before, before | kBlocked,
                                    std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
      return true;
    }
  }
  return false;
}

bool WaitWord::TakeSleeper() {
  // acq_rel (M15): as in SetQuietly; blocked_ comes with the bit.
  return (word_.fetch_and(~kBlocked, std::memory_order_acq_rel) & kBlocked) !=
         0;
}

uint32_t WaitWord::Wait(uint32_t mask, Deadline deadline) {
  if (tls_block.blocker != nullptr) {
    while (true) {
      const uint32_t seen = Peek() & mask;
      if (seen != 0) return seen;
      if (deadline.passed()) return 0;
      tls_block.blocker->Block(*this, mask, deadline);
    }
  }
  while (true) {
    // acquire, acq_rel (M15), here and below: see above.
    const uint32_t seen = word_.load(std::memory_order_acquire);
    if ((seen & mask) != 0) return seen & mask;
    const uint32_t asleep =
        word_.fetch_or(kSleeping, std::memory_order_acq_rel) | kSleeping;
    FutexResult result = FutexResult::kValueChanged;
    if ((asleep & mask) == 0) result = FutexWait(word_, asleep, deadline);
    const uint32_t after =
        word_.fetch_and(~kSleeping, std::memory_order_acq_rel);
    if ((after & mask) != 0) return after & mask;
    if (result == FutexResult::kTimedOut) return 0;
  }
}

uint32_t WaitWord::Take(uint32_t bits) {
  // acq_rel (M15): what came before each bit that is taken is seen.
  const uint32_t before = word_.fetch_and(~bits, std::memory_order_acq_rel);
  const bool takes_interrupt = (bits & (kInterrupt | kCancel)) == kInterrupt;
  if (takes_interrupt && (before & kCancel) != 0) {
    // relaxed (M15): the owner's own bit, which it had before.
    word_.fetch_or(kInterrupt, std::memory_order_relaxed);
  }
  return before & bits;
}

}  // namespace stillpoint
