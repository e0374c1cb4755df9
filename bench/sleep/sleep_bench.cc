// How long a sleep really takes, mean and 99th percentile, in nanoseconds:
//   kernel   clock_nanosleep(2) with the slack that the process was started
//            with: what a program without this library gets
//   default  Sleep, the same slack
//   slack1   Sleep, slack 1 ns
//   precise  SleepPrecise, the slack of "default"
// turn and turn about on one thread, which is Managed. With fewer than 100
// samples p99 is the longest.

#include <time.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "bench/support/comparison.h"
#include "benchmark/benchmark.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/stillpoint.h"

namespace stillpoint {
namespace {

using std::chrono::nanoseconds;

void SetSlack(nanoseconds slack) {
  const absl::Status set = SetCurrentTimerSlack(slack);
  STILLPOINT_CHECK(set.ok(), std::string(set.message()));
}

struct Way {
  const char* name;
  bool least_slack;
  void (*sleep_until)(int64_t nanos);
};

constexpr Way kWays[] = {
    {"kernel", false,
     [](int64_t nanos) {
       const timespec until = {nanos / 1'000'000'000, nanos % 1'000'000'000};
       const NativeScope native;
       clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
     }},
    {"default", false,
     [](int64_t nanos) { (void)Sleep(Deadline::AtMonotonicNanos(nanos)); }},
    {"slack1", true,
     [](int64_t nanos) { (void)Sleep(Deadline::AtMonotonicNanos(nanos)); }},
    {"precise", false,
     [](int64_t nanos) {
       (void)SleepPrecise(Deadline::AtMonotonicNanos(nanos));
     }},
};
constexpr int kWayCount = sizeof(kWays) / sizeof(kWays[0]);

void Slept(benchmark::State& state) {
  const nanoseconds duration(state.range(0));
  const absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create();
  STILLPOINT_CHECK(runtime.ok(), "no runtime");
  const nanoseconds default_slack = CurrentTimerSlack().value();
  bench::Samples samples[kWayCount];
  {
    const AttachScope attached(**runtime, "sleeper");
    STILLPOINT_CHECK(attached.status().ok(), "cannot attach");
    const ManagedScope managed;
    int first = 0;
    for (auto _ : state) {
      double total = 0;
      for (int i = 0; i < kWayCount; ++i) {
        const int at = (first + i) % kWayCount;
        const Way& way = kWays[at];
        SetSlack(way.least_slack ? nanoseconds(1) : default_slack);
        const int64_t begin = MonotonicNanos();
        way.sleep_until(begin + duration.count());
        const double nanos = static_cast<double>(MonotonicNanos() - begin);
        samples[at].Add(nanos);
        total += nanos;
      }
      ++first;
      state.SetIterationTime(total / 1e9);
    }
  }
  for (int i = 0; i < kWayCount; ++i) {
    const std::string name = kWays[i].name;
    state.counters[name + "_mean"] = samples[i].Mean();
    state.counters[name + "_p99"] = samples[i].Quantile(0.99);
    if (name == "precise") {
      state.counters["precise_late_p50"] =
          samples[i].Quantile(0.5) - static_cast<double>(duration.count());
    }
  }
  state.counters["default_slack"] = static_cast<double>(default_slack.count());
}

void Register(int64_t nanos, int iterations) {
  benchmark::RegisterBenchmark("Slept", &Slept)
      ->ArgName("ns")
      ->Arg(nanos)
      ->Iterations(iterations)
      ->UseManualTime();
}

const bool registered = [] {
  for (const int64_t nanos : {0, 1, 10, 100, 1'000, 10'000, 100'000}) {
    Register(nanos, 2'000);
  }
  Register(1'000'000, 300);
  Register(10'000'000, 50);
  Register(100'000'000, 10);
  Register(1'000'000'000, 2);
  return true;
}();

}  // namespace
}  // namespace stillpoint
