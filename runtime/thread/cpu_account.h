// What a thread's record keeps of its CPU time. Internal; see cpu_times.h.

#ifndef STILLPOINT_RUNTIME_THREAD_CPU_ACCOUNT_H_
#define STILLPOINT_RUNTIME_THREAD_CPU_ACCOUNT_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "runtime/os/fast_cpu_clock.h"

namespace stillpoint {

// The largest value that anybody has seen of something that grows, until the
// thread that it is about ends and seals it. Who has seen a value raises this
// to it before he tells anybody, so no later answer is smaller, and the sealed
// one never changes.
class SealedMaximum {
 public:
  // Nobody else may look yet.
  void Reset() {
    // release (M41): who sees this sees that the slot has changed hands.
    word_.store(0, std::memory_order_release);
  }

  // Not below 0. Returns the maximum, which is below `seen` if it was sealed
  // before.
  int64_t Raise(int64_t seen) { return Change(seen, 0); }

  // The same, for the last time.
  void Seal(int64_t seen) { Change(seen, kSealed); }

  int64_t value() const {
    // acquire (M41): see CpuAccount.
    return word_.load(std::memory_order_acquire) >> 1;
  }

 private:
  static constexpr int64_t kSealed = 1;

  int64_t Change(int64_t seen, int64_t seal) {
    // acquire, release (M41): see CpuAccount.
    int64_t before = word_.load(std::memory_order_acquire);
    while ((before & kSealed) == 0 && (before >> 1 < seen || seal != 0)) {
      const int64_t after = std::max(before >> 1, seen) * 2 + seal;
      if (word_.compare_exchange_weak(before, after, std::memory_order_release,
                                      std::memory_order_acquire)) {
        return after >> 1;
      }
    }
    return before >> 1;
  }

  std::atomic<int64_t> word_{0};  // the value, shifted by one, and the seal
};

// Nanoseconds, but for the generation. Read by anybody at any time; who reads
// must see afterwards that the slot is still that of the thread that he meant.
// Stores are release, loads acquire (M41): who sees a value of a later thread
// of the slot sees the later generation, too.
struct CpuAccount {
  // MonotonicNanos() when the thread was admitted, and since then.
  std::atomic<int64_t> began{0};
  SealedMaximum elapsed;

  // What the kernel's clocks show. Sealed by the owner at its end; raised by
  // readers that pin the slot.
  SealedMaximum raw_total;
  SealedMaximum raw_user;

  // The owner's own clock at its end.
  std::atomic<int64_t> last_fast{0};

  // The generation whose last values these are, once it has written them.
  std::atomic<uint64_t> final_of{0};

  FastCpuClock fast;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_CPU_ACCOUNT_H_
