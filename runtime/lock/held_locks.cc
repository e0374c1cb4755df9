#include "runtime/lock/held_locks.h"

#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/base/tls_block.h"

namespace stillpoint {

void CheckMayWaitFor(const RankedLock& lock) {
  for (uint32_t i = 0; i < tls_block.held_count; ++i) {
    const RankedLock& held = *tls_block.held[i];
    STILLPOINT_CHECK(&held != &lock, "lock ", lock.name(),
                     " is taken again by the thread that holds it");
    STILLPOINT_CHECK(
        held.rank() < lock.rank(), "lock ", lock.name(),
        " is taken out of order while ", held.name(),
        " is held: docs/lock_ranks.md has the order, outermost first");
    STILLPOINT_CHECK(!held.leaf(), "lock ", lock.name(),
                     " is waited for while ", held.name(),
                     " is held, which is a leaf: its holder waits for nothing");
  }
  STILLPOINT_CHECK(
      lock.leaf() || CurrentThreadIsSafe(), "lock ", lock.name(),
      " is waited for in Managed, where a safepoint would wait for this "
      "thread: enter a BlockedScope first, or use TryLock");
}

void DieHoldingTooMany(const RankedLock& lock) {
  Die({"lock ", lock.name(), " is one too many held by one thread"});
}

void PopHeldLockSlowly(const RankedLock& lock) {
  for (uint32_t i = tls_block.held_count; i-- > 0;) {
    if (tls_block.held[i] != &lock) continue;
    for (uint32_t j = i + 1; j < tls_block.held_count; ++j) {
      tls_block.held[j - 1] = tls_block.held[j];
    }
    --tls_block.held_count;
    return;
  }
  Die({"lock ", lock.name(), " is released by a thread that does not hold it"});
}

}  // namespace stillpoint
