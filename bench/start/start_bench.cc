// Starting threads: one start and join, and the rate of starts in a storm, both
// beside a program that calls pthread_create itself.

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/support/comparison.h"
#include "benchmark/benchmark.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/stillpoint.h"

namespace stillpoint {
namespace {

std::unique_ptr<Runtime> MakeRuntime(size_t stack_size) {
  Options options;
  options.stack_size = stack_size;
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create(options);
  STILLPOINT_CHECK(runtime.ok(), "no runtime");
  return *std::move(runtime);
}

// The bare limit: a joinable thread, and nothing around it.
pthread_t CreateBare(size_t stack_size, void* (*entry)(void*), void* argument) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (stack_size != 0) pthread_attr_setstacksize(&attributes, stack_size);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, entry, argument);
  STILLPOINT_CHECK(error == 0, "pthread_create failed");
  pthread_attr_destroy(&attributes);
  return thread;
}

void StartAndJoin(benchmark::State& state) {
  const size_t stack_size = static_cast<size_t>(state.range(0)) * 1024;
  std::unique_ptr<Runtime> runtime = MakeRuntime(stack_size);
  AttachScope attached(*runtime, "bench");
  // One sample is several in a row. Our joiner goes on while the OS thread
  // still ends; that falls on the next start, or does not, so that single times
  // fall into two heaps, and their median says which is larger.
  constexpr int kInARow = 16;
  bench::Compare(
      state, {.operations = kInARow},
      [&] {
        for (int i = 0; i < kInARow; ++i) {
          absl::StatusOr<ThreadHandle> thread = runtime->Start([] {});
          STILLPOINT_CHECK(thread.ok(), "Start failed");
          (void)thread->Join();
        }
      },
      [&] {
        for (int i = 0; i < kInARow; ++i) {
          const pthread_t thread = CreateBare(
              stack_size, [](void*) -> void* { return nullptr; }, nullptr);
          pthread_join(thread, nullptr);
        }
      });
}
BENCHMARK(StartAndJoin)
    ->ArgName("stack_kb")
    ->Arg(0)  // the system's default
    ->Arg(64)
    ->UseManualTime();

// The storm of examples/storm: starters that start short-lived threads as fast
// as they can, each with so many unfinished ones at most.
constexpr int kStarters = 4;
constexpr size_t kAlive = 16;
constexpr std::chrono::microseconds kWork(20);
constexpr std::chrono::milliseconds kSlice(100);

// What a thread of the storm does; `step` is what differs.
template <typename Step>
void Work(Step step) {
  const auto until = std::chrono::steady_clock::now() + kWork;
  do {
    for (int i = 0; i < 100; ++i) asm volatile("" ::: "memory");
    step();
  } while (std::chrono::steady_clock::now() < until);
}

struct Slice {
  std::atomic<bool> ending{false};
  std::atomic<uint64_t> starts{0};
};

void StartOurs(Runtime& runtime, Slice& slice) {
  ManagedScope managed;
  std::deque<ThreadHandle> unfinished;
  while (!slice.ending.load(std::memory_order_relaxed)) {
    absl::StatusOr<ThreadHandle> started = runtime.Start([] {
      Thread& self = Thread::CurrentOrDie();
      ManagedScope managed(self);
      Work([&self] { Poll(self); });
    });
    STILLPOINT_CHECK(started.ok(), "Start failed");
    slice.starts.fetch_add(1, std::memory_order_relaxed);
    unfinished.push_back(*std::move(started));
    while (!unfinished.empty() && !unfinished.front().alive()) {
      unfinished.pop_front();
    }
    if (unfinished.size() >= kAlive) {
      (void)unfinished.front().Join();
      unfinished.pop_front();
    }
    Poll();
  }
  for (const ThreadHandle& thread : unfinished) (void)thread.Join();
}

void StartBare(Slice& slice) {
  std::deque<pthread_t> unfinished;
  while (!slice.ending.load(std::memory_order_relaxed)) {
    unfinished.push_back(CreateBare(
        0,
        [](void*) -> void* {
          Work([] {});
          return nullptr;
        },
        nullptr));
    slice.starts.fetch_add(1, std::memory_order_relaxed);
    while (!unfinished.empty() &&
           pthread_tryjoin_np(unfinished.front(), nullptr) == 0) {
      unfinished.pop_front();
    }
    if (unfinished.size() >= kAlive) {
      pthread_join(unfinished.front(), nullptr);
      unfinished.pop_front();
    }
  }
  for (pthread_t thread : unfinished) pthread_join(thread, nullptr);
}

// Nanoseconds a start, over one slice, with a stop every `interval` if that is
// not 0.
double RunOurs(Runtime& runtime, std::chrono::milliseconds interval) {
  Slice slice;
  std::vector<ThreadHandle> starters;
  const int64_t begin = MonotonicNanos();
  for (int i = 0; i < kStarters; ++i) {
    absl::StatusOr<ThreadHandle> started =
        runtime.Start([&] { StartOurs(runtime, slice); });
    STILLPOINT_CHECK(started.ok(), "Start failed");
    starters.push_back(*std::move(started));
  }
  const auto end = std::chrono::steady_clock::now() + kSlice;
  if (interval.count() == 0) {
    std::this_thread::sleep_until(end);
  } else {
    while (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(interval);
      (void)runtime.AtSafepoint("storm", [](World&) {});
    }
  }
  const uint64_t starts = slice.starts.load();
  const int64_t length = MonotonicNanos() - begin;
  slice.ending.store(true);
  for (const ThreadHandle& starter : starters) (void)starter.Join();
  return static_cast<double>(length) / static_cast<double>(starts);
}

double RunBare() {
  Slice slice;
  std::vector<std::thread> starters;
  const int64_t begin = MonotonicNanos();
  for (int i = 0; i < kStarters; ++i) {
    starters.emplace_back([&] { StartBare(slice); });
  }
  std::this_thread::sleep_for(kSlice);
  const uint64_t starts = slice.starts.load();
  const int64_t length = MonotonicNanos() - begin;
  slice.ending.store(true);
  for (std::thread& starter : starters) starter.join();
  return static_cast<double>(length) / static_cast<double>(starts);
}

// ns a start; rate_ratio is the rate of ours to the bare one.
void StormStarts(benchmark::State& state) {
  const std::chrono::milliseconds interval(state.range(0));
  std::unique_ptr<Runtime> runtime = MakeRuntime(0);
  bench::Samples ours;
  bench::Samples limit;
  for (auto _ : state) {
    ours.Add(RunOurs(*runtime, interval));
    limit.Add(RunBare());
  }
  bench::ReportComparison(state, ours, limit);
  state.counters["ours_per_s"] = 1e9 / ours.Quantile(0.5);
  state.counters["limit_per_s"] = 1e9 / limit.Quantile(0.5);
  state.counters["rate_ratio"] = limit.Quantile(0.5) / ours.Quantile(0.5);
}
BENCHMARK(StormStarts)
    ->ArgName("stop_every_ms")
    ->Arg(0)  // never
    ->Arg(5)
    ->Iterations(10)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stillpoint
