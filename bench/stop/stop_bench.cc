// How long a stop takes to reach and to leave, and how long an operation waits
// to run; each beside the least that could do the same.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/stop/busy_world.h"
#include "bench/support/comparison.h"
#include "benchmark/benchmark.h"
#include "examples/storm/storm.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/os/futex.h"
#include "runtime/stillpoint.h"

namespace stillpoint::bench {
namespace {

// Between stops, so that each finds the mutators running.
constexpr std::chrono::milliseconds kPause(2);

// Measures `which` of a stop with state.range(0) busy mutators.
void CompareStops(benchmark::State& state, int64_t StopTimes::*which) {
  BusyWorld world(static_cast<uint32_t>(state.range(0)));
  Samples ours;
  Samples limit;
  for (auto _ : state) {
    std::this_thread::sleep_for(kPause);
    const int64_t nanos = world.StopOurs().*which;
    ours.Add(static_cast<double>(nanos));
    state.SetIterationTime(static_cast<double>(nanos) / 1e9);
    std::this_thread::sleep_for(kPause);
    limit.Add(static_cast<double>(world.StopBare().*which));
  }
  ReportComparison(state, ours, limit);
}

void BM_Reach(benchmark::State& state) {
  CompareStops(state, &StopTimes::reach);
}
void BM_LeaveStopperFree(benchmark::State& state) {
  CompareStops(state, &StopTimes::stopper_free);
}
void BM_LeaveLastRuns(benchmark::State& state) {
  CompareStops(state, &StopTimes::last_runs);
}

// With 64 of them a stop and what follows it take a large part of a second.
// Against a wake-all by hand in the last two.
BENCHMARK(BM_Reach)->Arg(1)->Arg(8)->UseManualTime()->Iterations(200);
BENCHMARK(BM_Reach)->Arg(64)->UseManualTime()->Iterations(20);
BENCHMARK(BM_LeaveStopperFree)->Arg(8)->UseManualTime()->Iterations(100);
BENCHMARK(BM_LeaveStopperFree)->Arg(64)->UseManualTime()->Iterations(20);
BENCHMARK(BM_LeaveLastRuns)->Arg(8)->UseManualTime()->Iterations(100);
BENCHMARK(BM_LeaveLastRuns)->Arg(64)->UseManualTime()->Iterations(20);

class LastRecord : public EventSink {
 public:
  void OnSafepoint(const SafepointRecord& record) override { last = record; }
  SafepointRecord last;
};

// Threads that wait in the runtime, against a scan of as many cache lines.
void BM_ReachBlocked(benchmark::State& state) {
  struct alignas(kCacheLineSize) Line {
    std::atomic<uint32_t> word{4};
  };
  const size_t count = static_cast<size_t>(state.range(0));
  LastRecord sink;
  Options options;
  options.event_sink = &sink;
  options.stack_size = size_t{64} << 10;
  options.min_mutator_time = std::chrono::nanoseconds(0);
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create(options);
  STILLPOINT_CHECK(runtime.ok(), "no runtime for the benchmark");
  std::vector<ThreadHandle> threads;
  for (size_t i = 0; i < count; ++i) {
    absl::StatusOr<ThreadHandle> thread = (*runtime)->Start([] {
      ManagedScope managed;
      (void)Park();
    });
    if (!thread.ok()) {
      state.SkipWithError(std::string(thread.status().message()).c_str());
      break;
    }
    threads.push_back(*std::move(thread));
  }
  const auto all_blocked = [&] {
    for (const PinnedThread& thread : (*runtime)->Threads()) {
      if (thread.state() != ThreadState::kBlocked) return false;
    }
    return true;
  };
  while (!all_blocked()) std::this_thread::sleep_for(kPause);

  std::vector<Line> lines(count);
  Samples ours;
  Samples limit;
  for (auto _ : state) {
    STILLPOINT_CHECK((*runtime)->AtSafepoint("bench", [](World&) {}).ok(),
                     "a stop of the benchmark failed");
    // None was armed, and so none was waited for or woken.
    STILLPOINT_CHECK(sink.last.threads_runnable == 0 &&
                         sink.last.threads_total == threads.size(),
                     "the parked threads are not all parked");
    ours.Add(static_cast<double>(sink.last.time_to_safepoint()));
    state.SetIterationTime(static_cast<double>(sink.last.time_to_safepoint()) /
                           1e9);
    const int64_t begin = MonotonicNanos();
    uint64_t sum = 0;
    for (const Line& line : lines) {
      sum += line.word.load(std::memory_order_acquire);
    }
    benchmark::DoNotOptimize(sum);
    limit.Add(static_cast<double>(MonotonicNanos() - begin));
  }
  for (const ThreadHandle& thread : threads) thread.Unpark();
  for (const ThreadHandle& thread : threads) (void)thread.Join();
  ReportComparison(state, ours, limit);
}
BENCHMARK(BM_ReachBlocked)->Arg(10000)->UseManualTime()->Iterations(300);

// From a request in an idle process to the operation, against waking a thread.
// Argument: 1, the requester may run it itself; 0, the VM thread runs it.
void BM_RequestToOperation(benchmark::State& state) {
  constexpr std::chrono::microseconds kIdle(500);
  Options options;
  options.requester_may_run = state.range(0) != 0;
  options.min_mutator_time = std::chrono::nanoseconds(0);
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create(options);
  STILLPOINT_CHECK(runtime.ok(), "no runtime for the benchmark");
  state.SetLabel(state.range(0) != 0 ? "by the requester" : "by the VM thread");

  std::atomic<uint32_t> turn{0};
  std::atomic<int64_t> woken_at{0};
  std::thread sleeper([&] {
    for (uint32_t seen = 0;; seen = turn.load()) {
      FutexWait(turn, seen, Deadline::Infinite());
      const uint32_t now = turn.load();
      if (now == UINT32_MAX) return;
      if (now != seen) woken_at.store(MonotonicNanos());
    }
  });
  Samples ours;
  Samples limit;
  for (auto _ : state) {
    std::this_thread::sleep_for(kIdle);
    int64_t ran_at = 0;
    int64_t begin = MonotonicNanos();
    STILLPOINT_CHECK(
        (*runtime)
            ->AtSafepoint("bench", [&](World&) { ran_at = MonotonicNanos(); })
            .ok(),
        "a stop of the benchmark failed");
    ours.Add(static_cast<double>(ran_at - begin));
    state.SetIterationTime(static_cast<double>(ran_at - begin) / 1e9);

    std::this_thread::sleep_for(kIdle);
    woken_at.store(0);
    begin = MonotonicNanos();
    turn.fetch_add(1);
    FutexWake(turn, 1);
    int64_t at;
    while ((at = woken_at.load()) == 0) std::this_thread::yield();
    limit.Add(static_cast<double>(at - begin));
  }
  turn.store(UINT32_MAX);
  FutexWake(turn, 1);
  sleeper.join();
  ReportComparison(state, ours, limit);
}
BENCHMARK(BM_RequestToOperation)
    ->Arg(1)
    ->Arg(0)
    ->UseManualTime()
    ->Iterations(300);

// Time to safepoint in a storm of four starters, by start protocol (in the
// order of the enumeration).
void BM_StormReach(benchmark::State& state) {
  const auto protocol = static_cast<StartProtocol>(state.range(0));
  storm::StormConfig config;
  config.starters = 4;
  config.length = std::chrono::seconds(2);
  const std::atomic<bool> never{false};
  for (auto _ : state) {
    const absl::StatusOr<storm::StormResult> result =
        storm::RunStorm(config, protocol, never, [](double, uint64_t) {});
    STILLPOINT_CHECK(result.ok() && result->violations == 0,
                     "the storm of the benchmark failed");
    state.SetIterationTime(result->seconds);
    state.counters["ours_p50"] =
        static_cast<double>(result->time_to_safepoint.Quantile(0.5));
    state.counters["ours_p99"] =
        static_cast<double>(result->time_to_safepoint.Quantile(0.99));
    state.counters["starts_per_s"] = result->starts_per_second();
  }
  state.SetLabel(std::string(StartProtocolName(protocol)));
}
BENCHMARK(BM_StormReach)
    ->DenseRange(0, 2)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kSecond);

}  // namespace
}  // namespace stillpoint::bench
