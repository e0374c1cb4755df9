// The processor's time stamp counter.

#ifndef STILLPOINT_RUNTIME_OS_TSC_H_
#define STILLPOINT_RUNTIME_OS_TSC_H_

#include <cstdint>

namespace stillpoint {

// Whether the counter runs at one rate for ever, whatever the processor's
// frequency and sleep states: CPUID leaf 0x80000007, EDX bit 8 ("invariant
// TSC"; Intel SDM vol. 3 18.17.1, AMD APM vol. 3 E.4.6). False on other
// architectures, where ReadTsc must not be called.
bool HasInvariantTsc();

// The counter's value now. Not ordered against other instructions; a thread
// that is interrupted between this and its neighbours sees them in program
// order all the same.
[[gnu::always_inline]] inline uint64_t ReadTsc() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return 0;
#endif
}

// A reading of the counter and of CLOCK_MONOTONIC_RAW at about the same time,
// to tens of nanoseconds.
struct TscSample {
  uint64_t ticks = 0;
  int64_t nanos = 0;
};
TscSample SampleTsc();

// Nanoseconds per tick between two samples, times 2^kTscShift. A millisecond
// apart they give it to about 1 in 10,000. 0 if it does not fit (a counter
// below 250 MHz) or if the samples make no sense.
inline constexpr int kTscShift = 30;
uint32_t TscMultiplier(const TscSample& begin, const TscSample& end);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_TSC_H_
