// "Ours" beside "the bare limit": both measured in one process, turn and turn
// about, so that what else the machine does falls on both alike.

#ifndef STILLPOINT_BENCH_SUPPORT_COMPARISON_H_
#define STILLPOINT_BENCH_SUPPORT_COMPARISON_H_

#include <vector>

#include "benchmark/benchmark.h"
#include "runtime/base/clock.h"

namespace stillpoint::bench {

// Durations in nanoseconds, all of them kept: the steps of runtime/base/
// histogram.h, 1/32, are too coarse for ratios close to 1.
class Samples {
 public:
  void Add(double nanos) { nanos_.push_back(nanos); }
  bool empty() const { return nanos_.empty(); }

  // Needs one.
  double Mean() const;

  // The smallest sample that at least `q` (0..1) of them do not exceed. Needs
  // one.
  double Quantile(double q) const;

 private:
  mutable std::vector<double> nanos_;  // reordered by Quantile
};

// Sets the counters ours_p50, ours_p99, limit_p50, limit_p99 (ns) and ratio_p50
// (ours to limit) of `state`. With fewer than 100 samples p99 is the maximum.
// Nothing if either has none.
void ReportComparison(benchmark::State& state, const Samples& ours,
                      const Samples& limit);

struct Turns {
  // Calls in a row before the other has its turn: more than 1 where a call
  // leaves work behind that goes on meanwhile.
  int calls = 1;
  // Operations that one call does: many where one is too short for the clock.
  int operations = 1;
};

// The body of a benchmark (registered with UseManualTime): calls `ours` and
// `limit` by turns, times each call, and reports both per operation. Who begins
// changes, too.
template <typename Ours, typename Limit>
void Compare(benchmark::State& state, Turns turns, Ours ours, Limit limit) {
  Samples ours_samples;
  Samples limit_samples;
  const auto take_turn = [&turns](auto& function, Samples& samples) {
    double total = 0;
    for (int i = 0; i < turns.calls; ++i) {
      const int64_t begin = MonotonicNanos();
      function();
      const double nanos = static_cast<double>(MonotonicNanos() - begin);
      samples.Add(nanos / turns.operations);
      total += nanos;
    }
    return total;
  };
  bool ours_first = true;
  for (auto _ : state) {
    if (!ours_first) take_turn(limit, limit_samples);
    state.SetIterationTime(take_turn(ours, ours_samples) / 1e9);
    if (ours_first) take_turn(limit, limit_samples);
    ours_first = !ours_first;
  }
  ReportComparison(state, ours_samples, limit_samples);
}

}  // namespace stillpoint::bench

#endif  // STILLPOINT_BENCH_SUPPORT_COMPARISON_H_
