// Two carriers: waking each other across them, and work that is independent.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/green/green_world.h"
#include "bench/support/comparison.h"
#include "benchmark/benchmark.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/stillpoint.h"

namespace stillpoint::bench {
namespace {

// Two that wake each other in turn, each on a carrier of its own: there and
// back. A thread stays where it first runs, so neither goes on before both do.
double PingPongAcross(Runtime& runtime, In in) {
  constexpr int kRoundTrips = 20'000;
  std::atomic<int> running{0};
  ThreadHandle ping;
  ThreadHandle pong;
  std::atomic<bool> known{false};
  int64_t nanos = 0;
  const auto meet = [&] {
    running.fetch_add(1);
    while (running.load() < 2 || !known.load()) CpuRelax();
  };
  ping = StartGreen(runtime, [&] {
    meet();
    Inside(in, [&] {
      const int64_t begin = MonotonicNanos();
      for (int i = 0; i < kRoundTrips; ++i) {
        (void)pong.Unpark();
        (void)Park();
      }
      nanos = MonotonicNanos() - begin;
    });
  });
  pong = StartGreen(runtime, [&] {
    meet();
    Inside(in, [&] {
      for (int i = 0; i < kRoundTrips; ++i) {
        (void)Park();
        (void)ping.Unpark();
      }
    });
  });
  known.store(true);
  JoinAll({ping, pong});
  return static_cast<double>(nanos) / kRoundTrips;
}

// Threads that compute and poll, of which none needs another.
int64_t NanosOfIndependentWork(Runtime& runtime) {
  constexpr int kThreads = 8;
  constexpr uint64_t kTurns = 5'000'000;
  const int64_t begin = MonotonicNanos();
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(StartGreen(runtime, [i] {
      Thread& self = Thread::CurrentOrDie();
      ManagedScope managed(self);
      uint64_t value = static_cast<uint64_t>(i);
      for (uint64_t turn = 0; turn < kTurns; ++turn) {
        value = value * 6364136223846793005u + 1442695040888963407u;
        Poll(self);
      }
      benchmark::DoNotOptimize(value);
    }));
  }
  JoinAll(threads);
  return MonotonicNanos() - begin;
}

// By turns on one carrier and on two.
void IndependentWork(benchmark::State& state) {
  const auto one = MakeGreenRuntime(FencePolicy::kAuto, 1);
  const auto two = MakeGreenRuntime(FencePolicy::kAuto, 2);
  Samples on_one;
  Samples on_two;
  for (auto _ : state) {
    on_one.Add(static_cast<double>(NanosOfIndependentWork(*one)));
    const int64_t nanos = NanosOfIndependentWork(*two);
    on_two.Add(static_cast<double>(nanos));
    state.SetIterationTime(static_cast<double>(nanos) / 1e9);
  }
  state.counters["one_ms"] = on_one.Quantile(0.5) / 1e6;
  state.counters["two_ms"] = on_two.Quantile(0.5) / 1e6;
  state.counters["speed_up"] = on_one.Quantile(0.5) / on_two.Quantile(0.5);
}
BENCHMARK(IndependentWork)
    ->UseManualTime()
    ->Iterations(20)
    ->Unit(benchmark::kMillisecond);

const bool kRegistered = [] {
  RegisterInAllModes("PingPongAcross", 2, &PingPongAcross);
  return true;
}();

}  // namespace
}  // namespace stillpoint::bench
