#include "bench/cpu/sample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/clock.h"

namespace stillpoint::bench {

double MeasureNanosPerTick() {
  constexpr int64_t kNanos = 20'000'000;
  const int64_t begin = MonotonicNanos();
  const uint64_t begin_ticks = Ticks();
  int64_t now = begin;
  while (now - begin < kNanos) now = MonotonicNanos();
  return static_cast<double>(now - begin) /
         static_cast<double>(Ticks() - begin_ticks);
}

uint64_t MeasureEmptyTicks() {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t begin = Ticks();
    least = std::min(least, Ticks() - begin);
  }
  return least;
}

Summary Summarize(const std::vector<double>& values) {
  Summary summary;
  const double count = static_cast<double>(values.size());
  if (values.size() < 2) return summary;
  for (double value : values) summary.mean += value / count;
  double squares = 0;
  for (double value : values) {
    squares += (value - summary.mean) * (value - summary.mean);
  }
  summary.error = std::sqrt(squares / (count - 1) / count);
  return summary;
}

double Quantile(std::vector<double>& values, double q) {
  if (!std::is_sorted(values.begin(), values.end())) {
    std::sort(values.begin(), values.end());
  }
  const double size = static_cast<double>(values.size());
  return values[static_cast<size_t>(
                    std::clamp(std::ceil(q * size), 1.0, size)) -
                1];
}

}  // namespace stillpoint::bench
