#include "runtime/thread/wait_word.h"

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/os/futex.h"

namespace stillpoint {

// All writers use read-modify-writes, so the word has one order of changes and
// nobody's bit is overwritten. acq_rel on each (M15): release pairs with the
// acquire of the owner that reads the bit; no other location takes part, so
// nothing needs seq_cst.

void WaitWord::Set(uint32_t bits) {
  if (const void* asleep = SetQuietly(bits)) FutexWakeRaw(asleep, 1);
}

const void* WaitWord::SetQuietly(uint32_t bits) {
  // acq_rel (M15): all that came before is seen by who finds the bits.
  const uint32_t before = word_.fetch_or(bits, std::memory_order_acq_rel);
  // Without the sleeping bit the owner looks at the word before it sleeps.
  const bool asleep = (before & kSleeping) != 0 && (before & bits) != bits;
  return asleep ? &word_ : nullptr;
}

uint32_t WaitWord::Wait(uint32_t mask, Deadline deadline) {
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
  return word_.fetch_and(~bits, std::memory_order_acq_rel) & bits;
}

}  // namespace stillpoint
