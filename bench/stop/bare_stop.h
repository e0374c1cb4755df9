// A stop written by hand, as plainly as possible: the limit that the runtime's
// stop is measured against. It knows its mutators and stops nothing but
// pollers. How its end wakes them is a parameter.

#ifndef STILLPOINT_BENCH_STOP_BARE_STOP_H_
#define STILLPOINT_BENCH_STOP_BARE_STOP_H_

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/os/futex.h"

namespace stillpoint::bench {

// Who wakes the mutators when a stop ends.
struct ResumePolicy {
  // How many the stopper wakes at once.
  int wakes = INT32_MAX;
  // How many each of them wakes in turn.
  int fan_out = 0;
  // Whether the stopper goes on, after a sched_yield, until all are awake.
  bool in_batches = false;
};

class BareStop {
 public:
  explicit BareStop(uint32_t mutators) : mutators_(mutators) {}

  // A mutator's poll.
  void Poll() {
    const uint32_t seen = flag_.load(std::memory_order_relaxed);
    if ((seen & 1) != 0) [[unlikely]]
      Arrive(seen);
  }

  // Returns when all mutators have arrived.
  void Begin() {
    constexpr int64_t kSpinNanos = 20'000;
    const int64_t give_up = MonotonicNanos() + kSpinNanos;
    flag_.fetch_add(1);
    uint32_t arrived;
    while ((arrived = arrived_.load()) != mutators_) {
      if (MonotonicNanos() < give_up) {
        CpuRelax();
      } else {
        FutexWait(arrived_, arrived, Deadline::Infinite());
      }
    }
  }

  void End(const ResumePolicy& policy) {
    arrived_.store(0);
    fan_out_.store(policy.fan_out);
    flag_.fetch_add(1);
    int woken = FutexWake(flag_, policy.wakes);
    while (policy.in_batches && woken == policy.wakes) {
      sched_yield();
      woken = FutexWake(flag_, policy.wakes);
    }
  }

 private:
  void Arrive(uint32_t seen) {
    if (arrived_.fetch_add(1) + 1 == mutators_) FutexWake(arrived_, 1);
    while (flag_.load() == seen) {
      FutexWait(flag_, seen, Deadline::Infinite());
    }
    const int fan_out = fan_out_.load(std::memory_order_relaxed);
    if (fan_out != 0) FutexWake(flag_, fan_out);
  }

  const uint32_t mutators_;
  std::atomic<int> fan_out_{0};
  alignas(kCacheLineSize) std::atomic<uint32_t> flag_{0};
  alignas(kCacheLineSize) std::atomic<uint32_t> arrived_{0};
};

}  // namespace stillpoint::bench

#endif  // STILLPOINT_BENCH_STOP_BARE_STOP_H_
