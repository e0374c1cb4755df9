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
  // overflows for values like hours::max(), and turns the upper half of an
  // unsigned count into a negative one.
  template <typename Rep, typename Period>
  static Deadline After(std::chrono::duration<Rep, Period> timeout) {
    using std::chrono::nanoseconds;
    // Not a number has passed, too.
    if (!(timeout > timeout.zero())) return After(nanoseconds::zero());
    if constexpr (std::is_integral_v<Rep>) {
      // Holds the product of a count (64 bits) and a numerator (63).
      using Wide = unsigned __int128;
      using Scale = std::ratio_divide<Period, std::nano>;
      const Wide nanos =
          static_cast<Wide>(timeout.count()) * Scale::num / Scale::den;
      if (nanos >= static_cast<Wide>(kNever)) return Infinite();
      return After(nanoseconds(static_cast<int64_t>(nanos)));
    } else {
      using Wide = std::chrono::duration<long double, std::nano>;
      const long double nanos = Wide(timeout).count();
      if (nanos >= static_cast<long double>(kNever)) return Infinite();
      return After(nanoseconds(static_cast<int64_t>(nanos)));
    }
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
