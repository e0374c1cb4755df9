// Which ranked locks the calling thread holds, and the order check.
//
// The list is kept in every build, not only where debug checks are on: requests
// that would hang with a lock held have to be refused in release builds too.

#ifndef STILLPOINT_RUNTIME_LOCK_HELD_LOCKS_H_
#define STILLPOINT_RUNTIME_LOCK_HELD_LOCKS_H_

#include <cstdint>
#include <string_view>

#include "runtime/base/tls_block.h"
#include "runtime/lock/lock_rank.h"

namespace stillpoint {

// Anything with a rank that a thread can hold.
class RankedLock {
 public:
  explicit constexpr RankedLock(const LockRank& rank) : rank_(rank) {}
  RankedLock(const RankedLock&) = delete;
  RankedLock& operator=(const RankedLock&) = delete;

  std::string_view name() const { return rank_.name; }
  int rank() const { return rank_.rank; }
  bool leaf() const { return rank_.leaf; }

 private:
  const LockRank& rank_;  // static storage
};

// Before waiting for `lock`: dies naming both locks if the calling thread holds
// one of the same or a larger rank, or a leaf, and dies if it is in Managed (a
// stop would wait for it while it waits for the lock), unless `lock` is a leaf.
void CheckMayWaitFor(const RankedLock& lock);

// Out of line: not the usual case of the two below, or an error.
void PopHeldLockSlowly(const RankedLock& lock);
[[noreturn]] void DieHoldingTooMany(const RankedLock& lock);

// `lock` is held by the calling thread from now on / no longer. Locks may be
// released in any order.
inline void PushHeldLock(const RankedLock& lock) {
  const uint32_t count = tls_block.held_count;
  if (count == TlsBlock::kMaxHeldLocks) [[unlikely]]
    DieHoldingTooMany(lock);
  tls_block.held[count] = &lock;
  tls_block.held_count = count + 1;
}
inline void PopHeldLock(const RankedLock& lock) {
  const uint32_t count = tls_block.held_count;
  if (count != 0 && tls_block.held[count - 1] == &lock) [[likely]] {
    tls_block.held_count = count - 1;
  } else {
    PopHeldLockSlowly(lock);
  }
}

// The innermost ranked lock that the calling thread holds; null if none.
inline const RankedLock* InnermostHeldLock() {
  return tls_block.held_count == 0 ? nullptr
                                   : tls_block.held[tls_block.held_count - 1];
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_LOCK_HELD_LOCKS_H_
