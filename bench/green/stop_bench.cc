// A stop with a million green threads parked, beside the same stop with none:
// what is stopped is carriers.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/green/green_world.h"
#include "bench/support/comparison.h"
#include "benchmark/benchmark.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/os/futex.h"
#include "runtime/stillpoint.h"

namespace stillpoint::bench {
namespace {

// A runtime with `parked` green threads that wait, and, if `busy`, one more
// that runs and polls while it is this world's turn.
class ParkedWorld {
 public:
  ParkedWorld(size_t parked, bool busy)
      : runtime_(MakeGreenRuntime(FencePolicy::kAuto, 1)),
        attached_(*runtime_, "main") {
    STILLPOINT_CHECK(attached_.status().ok(), "the main thread is no member");
    std::atomic<size_t> begun{0};
    threads_.reserve(parked);
    for (size_t i = 0; i < parked; ++i) {
      threads_.push_back(StartGreen(*runtime_, [&begun] {
        ManagedScope managed;
        begun.fetch_add(1);
        Park().IgnoreError();
      }));
    }
    // The carrier has one at a time: when the last has begun, and another
    // thread had its turn after it, all are parked.
    while (begun.load() < parked) Yield();
    RunGreen(*runtime_, [] {});
    if (busy) mutator_ = StartGreen(*runtime_, [this] { BeBusy(); });
  }
  ~ParkedWorld() {
    end_.store(true);
    SetTurn(true);
    for (const ThreadHandle& thread : threads_) (void)thread.Unpark();
    JoinAll(threads_);
    (void)mutator_.Join();
  }

  // Per stop, for `stops` of them.
  double NanosPerStop(int stops) {
    SetTurn(true);
    if (mutator_.alive()) {
      while (!runs_.load()) Yield();
    }
    const int64_t begin = MonotonicNanos();
    for (int i = 0; i < stops; ++i) {
      STILLPOINT_CHECK(runtime_->AtSafepoint("bench", [](World&) {}).ok(),
                       "a stop of the benchmark failed");
    }
    const int64_t nanos = MonotonicNanos() - begin;
    SetTurn(false);
    return static_cast<double>(nanos) / stops;
  }

 private:
  void SetTurn(bool turn) {
    turn_.store(turn ? 1 : 0);
    FutexWake(turn_, 1);
    if (!turn && mutator_.alive()) {
      while (runs_.load()) Yield();
    }
  }

  void BeBusy() {
    Thread& self = Thread::CurrentOrDie();
    ManagedScope managed(self);
    // relaxed: looked at again at once.
    while (!end_.load(std::memory_order_relaxed)) {
      Poll(self);
      if (turn_.load(std::memory_order_relaxed) == 1) continue;
      runs_.store(false);
      {
        // With its carrier: nobody else needs that.
        NativeScope native;
        while (turn_.load() == 0) {
          FutexWait(turn_, uint32_t{0}, Deadline::Infinite());
        }
      }
      runs_.store(true);
    }
  }

  const std::unique_ptr<Runtime> runtime_;
  const AttachScope attached_;
  std::vector<ThreadHandle> threads_;
  std::atomic<uint32_t> turn_{1};
  std::atomic<bool> runs_{true};
  std::atomic<bool> end_{false};
  ThreadHandle mutator_;
};

void StopWithParked(benchmark::State& state, bool busy) {
  constexpr int kStops = 500;
  // One at a time: a thread is a member of one runtime.
  Samples with_parked;
  Samples without;
  for (auto _ : state) {
    for (const size_t parked : {size_t{0}, size_t{1'000'000}}) {
      ParkedWorld world(parked, busy);
      (void)world.NanosPerStop(kStops);
      for (int i = 0; i < 20; ++i) {
        const double nanos = world.NanosPerStop(kStops);
        (parked == 0 ? without : with_parked).Add(nanos);
      }
    }
    state.SetIterationTime(with_parked.Quantile(0.5) / 1e9);
  }
  ReportComparison(state, with_parked, without);
}

const bool kRegistered = [] {
  for (const bool busy : {false, true}) {
    benchmark::RegisterBenchmark(
        busy ? "StopWithMillionParked/busy" : "StopWithMillionParked/idle",
        [busy](benchmark::State& state) { StopWithParked(state, busy); })
        ->UseManualTime()
        ->Iterations(1);
  }
  return true;
}();

}  // namespace
}  // namespace stillpoint::bench
