#include "bench/support/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "benchmark/benchmark.h"

namespace stillpoint::bench {

double Samples::Mean() const {
  return std::accumulate(nanos_.begin(), nanos_.end(), 0.0) /
         static_cast<double>(nanos_.size());
}

double Samples::Quantile(double q) const {
  const double size = static_cast<double>(nanos_.size());
  const size_t rank =
      static_cast<size_t>(std::clamp(std::ceil(q * size), 1.0, size)) - 1;
  std::nth_element(nanos_.begin(), nanos_.begin() + rank, nanos_.end());
  return nanos_[rank];
}

void ReportComparison(benchmark::State& state, const Samples& ours,
                      const Samples& limit) {
  if (ours.empty() || limit.empty()) return;
  state.counters["ours_p50"] = ours.Quantile(0.5);
  state.counters["ours_p99"] = ours.Quantile(0.99);
  state.counters["limit_p50"] = limit.Quantile(0.5);
  state.counters["limit_p99"] = limit.Quantile(0.99);
  state.counters["ratio_p50"] = ours.Quantile(0.5) / limit.Quantile(0.5);
}

}  // namespace stillpoint::bench
