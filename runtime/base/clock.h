// Monotonic time and deadlines that cannot overflow.

#ifndef STILLPOINT_RUNTIME_BASE_CLOCK_H_
#define STILLPOINT_RUNTIME_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace stillpoint {

// CLOCK_MONOTONIC in nanoseconds. Any thread, any state; about 25 ns where the
// kernel's vDSO serves it, else one system call.
int64_t MonotonicNanos();

// A point on CLOCK_MONOTONIC, or "never". A plain value.
class Deadline {
 public:
  // Never passes: waits with it end by their event or an interrupt only.
  static constexpr Deadline Infinite() { return Deadline(kNever); }

  // `timeout` from now. Zero and negative values have passed already; a value
  // too large for the clock is Infinite().
  static Deadline After(std::chrono::nanoseconds timeout);

  // The given reading of MonotonicNanos().
  static constexpr Deadline AtMonotonicNanos(int64_t nanos) {
    return Deadline(nanos);
  }

  constexpr bool infinite() const { return nanos_ == kNever; }
  bool passed() const { return !infinite() && MonotonicNanos() >= nanos_; }

  // The reading of MonotonicNanos() at which this passes; INT64_MAX = never.
  constexpr int64_t monotonic_nanos() const { return nanos_; }

 private:
  static constexpr int64_t kNever = INT64_MAX;
  explicit constexpr Deadline(int64_t nanos) : nanos_(nanos) {}
  int64_t nanos_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_BASE_CLOCK_H_
