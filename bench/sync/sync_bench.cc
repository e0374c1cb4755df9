// Mutex, CondVar and Channel: alone, contended, and from hand to hand; beside
// what the C++ library has.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/support/comparison.h"
#include "benchmark/benchmark.h"
#include "runtime/base/check.h"
#include "runtime/stillpoint.h"
#include "runtime/sync/channel.h"
#include "runtime/sync/cond_var.h"
#include "runtime/sync/mutex.h"

namespace stillpoint {
namespace {

// Too short for the clock one by one.
constexpr int kOperations = 10000;
constexpr bench::Turns kTurns = {.operations = kOperations};

template <typename Function>
[[gnu::noinline]] void Repeat(Function function) {
  for (int i = 0; i < kOperations; ++i) function();
}

std::unique_ptr<Runtime> MakeRuntime() {
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create();
  STILLPOINT_CHECK(runtime.ok(), "no runtime");
  return *std::move(runtime);
}

void UncontendedMutex(benchmark::State& state) {
  const std::unique_ptr<Runtime> runtime = MakeRuntime();
  AttachScope attached(*runtime, "bench");
  ManagedScope managed;
  Mutex ours;
  std::mutex theirs;
  bench::Compare(
      state, kTurns, [&] { Repeat([&] { MutexLock lock(ours); }); },
      [&] { Repeat([&] { std::lock_guard<std::mutex> lock(theirs); }); });
}
BENCHMARK(UncontendedMutex)->UseManualTime();

void NotifyNobody(benchmark::State& state) {
  CondVar ours;
  std::condition_variable theirs;
  bench::Compare(
      state, kTurns, [&] { Repeat([&] { ours.NotifyOne(); }); },
      [&] { Repeat([&] { theirs.notify_one(); }); });
}
BENCHMARK(NotifyNobody)->UseManualTime();

// One thread puts a value in and takes it out, beside a lock and an array.
void BufferedSendAndReceive(benchmark::State& state) {
  const std::unique_ptr<Runtime> runtime = MakeRuntime();
  AttachScope attached(*runtime, "bench");
  ManagedScope managed;
  Channel<int64_t> ours(16);
  std::mutex mutex;
  int64_t ring[16] = {};
  size_t first = 0;
  size_t count = 0;
  bench::Compare(
      state, kTurns,
      [&] {
        Repeat([&] {
          STILLPOINT_CHECK(ours.Send(1).ok(), "not sent");
          benchmark::DoNotOptimize(ours.Receive());
        });
      },
      [&] {
        Repeat([&] {
          {
            std::lock_guard<std::mutex> lock(mutex);
            ring[(first + count++) % 16] = 1;
          }
          {
            std::lock_guard<std::mutex> lock(mutex);
            benchmark::DoNotOptimize(ring[first]);
            first = (first + 1) % 16;
            --count;
          }
        });
      });
}
BENCHMARK(BufferedSendAndReceive)->UseManualTime();

// `threads` threads do `work` steps with the mutex and as many without.
template <typename LockAndWork>
void Contend(int threads, LockAndWork lock_and_work,
             const std::unique_ptr<Runtime>* runtime) {
  std::vector<ThreadHandle> handles;
  std::vector<std::thread> plain;
  for (int i = 0; i < threads; ++i) {
    const auto body = [&] {
      for (int j = 0; j < kOperations; ++j) lock_and_work();
    };
    if (runtime == nullptr) {
      plain.emplace_back(body);
    } else {
      ThreadOptions options;
      absl::StatusOr<ThreadHandle> started =
          (*runtime)->Start(std::move(options), [body] {
            ManagedScope managed;
            body();
          });
      STILLPOINT_CHECK(started.ok(), "not started");
      handles.push_back(*std::move(started));
    }
  }
  for (const ThreadHandle& handle : handles) handle.Join().IgnoreError();
  for (std::thread& thread : plain) thread.join();
}

void Work(int steps) {
  uint64_t value = 1;
  for (int i = 0; i < steps; ++i) {
    value = value * 0x9e3779b97f4a7c15 + 1;
    asm volatile("" : "+r"(value));
  }
}

void ContendedMutex(benchmark::State& state) {
  const std::unique_ptr<Runtime> runtime = MakeRuntime();
  const int threads = static_cast<int>(state.range(0));
  const int steps = static_cast<int>(state.range(1));
  Mutex ours;
  std::mutex theirs;
  bench::Compare(
      state, {.operations = kOperations * threads},
      [&] {
        Contend(
            threads,
            [&] {
              {
                MutexLock lock(ours);
                Work(steps);
              }
              Work(steps);
            },
            &runtime);
      },
      [&] {
        Contend(
            threads,
            [&] {
              {
                std::lock_guard<std::mutex> lock(theirs);
                Work(steps);
              }
              Work(steps);
            },
            nullptr);
      });
}
BENCHMARK(ContendedMutex)
    ->ArgNames({"threads", "steps"})
    ->ArgsProduct({{2, 8}, {0, 100, 1000}})
    ->UseManualTime();

// There and back between two OS threads.
void HandToHand(benchmark::State& state) {
  const std::unique_ptr<Runtime> runtime = MakeRuntime();
  AttachScope attached(*runtime, "bench");
  constexpr int kRounds = 1000;
  Channel<int64_t> there;
  Channel<int64_t> back;
  absl::StatusOr<ThreadHandle> echo = runtime->Start({}, [&] {
    ManagedScope managed;
    while (true) {
      absl::StatusOr<int64_t> value = there.Receive();
      if (!value.ok()) return;
      STILLPOINT_CHECK(back.Send(*value).ok(), "not sent");
    }
  });
  STILLPOINT_CHECK(echo.ok(), "not started");
  std::mutex mutex;
  std::condition_variable cond;
  int turn = 0;  // 1: there, 0: back, 2: over
  std::thread plain([&] {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      cond.wait(lock, [&] { return turn != 0; });
      if (turn == 2) return;
      turn = 0;
      cond.notify_one();
    }
  });
  {
    ManagedScope managed;
    bench::Compare(
        state, {.operations = kRounds},
        [&] {
          for (int i = 0; i < kRounds; ++i) {
            STILLPOINT_CHECK(there.Send(i).ok(), "not sent");
            benchmark::DoNotOptimize(back.Receive());
          }
        },
        [&] {
          for (int i = 0; i < kRounds; ++i) {
            std::unique_lock<std::mutex> lock(mutex);
            turn = 1;
            cond.notify_one();
            cond.wait(lock, [&] { return turn == 0; });
          }
        });
  }
  there.Close();
  {
    std::unique_lock<std::mutex> lock(mutex);
    turn = 2;
    cond.notify_one();
  }
  plain.join();
  echo->Join().IgnoreError();
}
BENCHMARK(HandToHand)->UseManualTime();

// There and back between two green threads on one carrier; beside a parked
// exchange of permits between them, which is the two switches and the waits.
void GreenHandToHand(benchmark::State& state) {
  Options options;
  options.carriers = 1;
  absl::StatusOr<std::unique_ptr<Runtime>> created = Runtime::Create(options);
  STILLPOINT_CHECK(created.ok(), "no runtime");
  Runtime& runtime = **created;
  Channel<int64_t> there;
  Channel<int64_t> back;
  const auto start = [&](auto body) {
    absl::StatusOr<ThreadHandle> started =
        runtime.Start({.kind = ThreadKind::kGreen}, body);
    STILLPOINT_CHECK(started.ok(), "not started");
    return *std::move(started);
  };
  const ThreadHandle echo = start([&] {
    ManagedScope managed;
    while (true) {
      absl::StatusOr<int64_t> value = there.Receive();
      if (!value.ok()) return;
      STILLPOINT_CHECK(back.Send(*value).ok(), "not sent");
    }
  });
  std::atomic<bool> over{false};
  ThreadHandle caller;
  std::atomic<bool> ready{false};
  const ThreadHandle parker = start([&] {
    ManagedScope managed;
    while (true) {
      Park().IgnoreError();
      if (over.load()) return;
      caller.Unpark();
    }
  });
  caller = start([&] {
    ManagedScope managed;
    while (!ready.load()) Yield();
    bench::Compare(
        state, kTurns,
        [&] {
          Repeat([&] {
            STILLPOINT_CHECK(there.Send(1).ok(), "not sent");
            benchmark::DoNotOptimize(back.Receive());
          });
        },
        [&] {
          Repeat([&] {
            parker.Unpark();
            Park().IgnoreError();
          });
        });
    there.Close();
    over.store(true);
    parker.Unpark();
  });
  ready.store(true);
  for (const ThreadHandle& thread : {caller, echo, parker}) {
    thread.Join().IgnoreError();
  }
}
BENCHMARK(GreenHandToHand)->UseManualTime();

}  // namespace
}  // namespace stillpoint
