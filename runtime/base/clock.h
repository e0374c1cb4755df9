// Monotonic time and deadlines that cannot overflow.

#ifndef STILLPOINT_RUNTIME_BASE_CLOCK_H_
#define STILLPOINT_RUNTIME_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>
#include <ratio>
#include <type_traits>

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

  // The same for every other unit: the conversion that the compiler would make
  // overflows for values like hours::max().
  template <typename Rep, typename Period>
  static Deadline After(std::chrono::duration<Rep, Period> timeout) {
    // Wide enough to hold the longest one, whatever Rep is.
    using Wide =
        std::chrono::duration<std::common_type_t<Rep, int64_t>, Period>;
    using std::chrono::nanoseconds;
    const Wide wide = timeout;
    if (!(wide > Wide::zero())) return After(nanoseconds::zero());
    // Counts of a finer unit only shrink on the way, unless they are floating.
    if constexpr (std::ratio_greater_v<Period, std::nano> ||
                  std::is_floating_point_v<Rep>) {
      if (wide >= std::chrono::duration_cast<Wide>(nanoseconds::max())) {
        return Infinite();
      }
    }
    return After(std::chrono::duration_cast<nanoseconds>(wide));
  }

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
