// Measuring calls that take from ten nanoseconds to ten microseconds, one by
// one and in batches.

#ifndef STILLPOINT_BENCH_CPU_SAMPLE_H_
#define STILLPOINT_BENCH_CPU_SAMPLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/os/tsc.h"

namespace stillpoint::bench {

// A counter for intervals: on x86-64 the time stamp counter, behind a barrier
// that lets what came before it end; else the system's clock.
inline uint64_t Ticks() {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
  const uint64_t ticks = ReadTsc();
  __builtin_ia32_lfence();
  return ticks;
#else
  return static_cast<uint64_t>(MonotonicNanos());
#endif
}

// How many nanoseconds a tick is; takes 20 ms.
double MeasureNanosPerTick();

// The least that two calls of Ticks() with nothing in between are apart: what
// to take off each sample.
uint64_t MeasureEmptyTicks();

struct Summary {
  double mean = 0;
  double error = 0;  // of the mean: standard deviation / sqrt(count)
};
Summary Summarize(const std::vector<double>& values);

// The smallest value that at least `q` (0..1) of them do not exceed. Sorts.
double Quantile(std::vector<double>& values, double q);

}  // namespace stillpoint::bench

#endif  // STILLPOINT_BENCH_CPU_SAMPLE_H_
