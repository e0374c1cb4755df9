// A handshake with a thread that runs and polls, in both fence modes, beside a
// bare futex round trip and a bare hand-off of a cache line; with a blocked
// thread, and with all of 1,000, beside the same closures without a protocol.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/support/comparison.h"
#include "benchmark/benchmark.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/os/futex.h"
#include "runtime/stillpoint.h"
#include "runtime/thread/fence.h"

namespace stillpoint::bench {
namespace {

std::unique_ptr<Runtime> MakeRuntime(FencePolicy fence) {
  Options options;
  options.fence = fence;
  options.stack_size = size_t{64} << 10;
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create(options);
  STILLPOINT_CHECK(runtime.ok(), "no runtime for the benchmark");
  return *std::move(runtime);
}

ThreadHandle Start(Runtime& runtime, absl::AnyInvocable<void()> body) {
  absl::StatusOr<ThreadHandle> thread = runtime.Start(std::move(body));
  STILLPOINT_CHECK(thread.ok(), "no thread for the benchmark");
  return *std::move(thread);
}

// A thread that answers by hand.
class BarePeer {
 public:
  enum class Kind { kFutex, kCacheLine };

  explicit BarePeer(Kind kind) : kind_(kind), thread_([this] { Answer(); }) {}
  ~BarePeer() {
    end_.store(true);
    Ask();
    thread_.join();
  }
  BarePeer(const BarePeer&) = delete;
  BarePeer& operator=(const BarePeer&) = delete;

  void RoundTrip() { Await(answered_, Ask()); }

 private:
  uint32_t Ask() {
    const uint32_t next = asked_.load() + 1;
    asked_.store(next);
    if (kind_ == Kind::kFutex) FutexWake(asked_, 1);
    return next;
  }

  void Answer() {
    uint32_t seen = 0;
    while (true) {
      Await(asked_, ++seen);
      if (end_.load()) return;
      answered_.store(seen);
      if (kind_ == Kind::kFutex) FutexWake(answered_, 1);
    }
  }

  void Await(const std::atomic<uint32_t>& word, uint32_t wanted) const {
    while (word.load() != wanted) {
      if (kind_ == Kind::kFutex) {
        FutexWait(word, wanted - 1, Deadline::Infinite());
      } else {
        CpuRelax();
      }
    }
  }

  const Kind kind_;
  alignas(kCacheLineSize) std::atomic<uint32_t> asked_{0};
  alignas(kCacheLineSize) std::atomic<uint32_t> answered_{0};
  std::atomic<bool> end_{false};
  std::thread thread_;
};

// A member that does nothing but poll while it is measured.
class PollingTarget {
 public:
  explicit PollingTarget(Runtime& runtime)
      : handle_(Start(runtime, [this] {
          ManagedScope managed;
          Thread& self = Thread::CurrentOrDie();
          // relaxed: looked at again at once.
          while (!end_.load(std::memory_order_relaxed)) {
            Poll(self);
            if (pause_.load(std::memory_order_relaxed)) {
              BlockedScope blocked;
              while (pause_.load()) FutexWait(pause_, 1u, Deadline::Infinite());
            }
          }
        })) {}
  ~PollingTarget() {
    end_.store(true);
    Pause(false);
    (void)handle_.Join();
  }

  // The other side needs the processor.
  void Pause(bool pause) {
    pause_.store(pause ? 1 : 0);
    FutexWake(pause_, 1);
  }
  const ThreadHandle& handle() const { return handle_; }

 private:
  std::atomic<uint32_t> pause_{0};
  std::atomic<bool> end_{false};
  ThreadHandle handle_;
};

void Ask(Runtime& runtime, const ThreadHandle& target) {
  const absl::StatusOr<HandshakeResult> result =
      runtime.Handshake(target, "bench", [](Thread&) {});
  STILLPOINT_CHECK(result.ok(), "a handshake of the benchmark failed");
}

// By turns of many round trips, so that only one of the two peers runs.
void CompareRunning(benchmark::State& state, FencePolicy fence,
                    BarePeer::Kind kind) {
  constexpr int kPerTurn = 200;
  const std::unique_ptr<Runtime> runtime = MakeRuntime(fence);
  AttachScope attached(*runtime, "requester");
  PollingTarget target(*runtime);
  Samples ours;
  Samples limit;
  for (auto _ : state) {
    target.Pause(false);
    // Else a proxy would run it.
    while (target.handle().slot()->state() != ThreadState::kManaged) {
      std::this_thread::yield();
    }
    for (int i = 0; i < 20; ++i) Ask(*runtime, target.handle());
    double total = 0;
    for (int i = 0; i < kPerTurn; ++i) {
      const int64_t begin = MonotonicNanos();
      Ask(*runtime, target.handle());
      const double nanos = static_cast<double>(MonotonicNanos() - begin);
      ours.Add(nanos);
      total += nanos;
    }
    state.SetIterationTime(total / 1e9);
    target.Pause(true);
    BarePeer peer(kind);
    for (int i = 0; i < 20; ++i) peer.RoundTrip();
    for (int i = 0; i < kPerTurn; ++i) {
      const int64_t begin = MonotonicNanos();
      peer.RoundTrip();
      limit.Add(static_cast<double>(MonotonicNanos() - begin));
    }
  }
  ReportComparison(state, ours, limit);
}

// With `threads` blocked ones: per thread. The limit runs the closure for each
// through the same kind of reference, with nothing to protect it.
void CompareBlocked(benchmark::State& state, FencePolicy fence) {
  const auto threads = static_cast<int>(state.range(0));
  const std::unique_ptr<Runtime> runtime = MakeRuntime(fence);
  AttachScope attached(*runtime, "requester");
  std::vector<ThreadHandle> targets;
  for (int i = 0; i < threads; ++i) {
    targets.push_back(Start(*runtime, [] {
      ManagedScope managed;
      Park().IgnoreError();
    }));
  }
  for (const PinnedThread& thread : runtime->Threads()) {
    while (thread.state() != ThreadState::kBlocked &&
           &thread.thread() != Thread::Current()) {
      std::this_thread::yield();
    }
  }
  uint64_t count = 0;
  const auto closure = [&count](Thread&) { ++count; };
  Compare(
      state, Turns{1, threads},
      [&] {
        if (threads == 1) {
          Ask(*runtime, targets[0]);
          return;
        }
        const absl::StatusOr<size_t> all =
            runtime->HandshakeAll("bench", closure);
        STILLPOINT_CHECK(all.ok(), "a handshake of the benchmark failed");
      },
      [&] {
        const absl::FunctionRef<void(Thread&)> reference = closure;
        for (const ThreadHandle& target : targets) reference(*target.slot());
        benchmark::DoNotOptimize(count);
      });
  for (const ThreadHandle& target : targets) {
    target.Unpark();
    (void)target.Join();
  }
}

void Register(FencePolicy fence, const std::string& mode) {
  for (const auto& [kind, name] :
       {std::pair(BarePeer::Kind::kFutex, "futex"),
        std::pair(BarePeer::Kind::kCacheLine, "cache_line")}) {
    benchmark::RegisterBenchmark(("BM_Running/" + mode + "/" + name).c_str(),
                                 [fence, kind = kind](benchmark::State& state) {
                                   CompareRunning(state, fence, kind);
                                 })
        ->UseManualTime()
        ->Iterations(20);
  }
  benchmark::RegisterBenchmark(
      ("BM_Blocked/" + mode).c_str(),
      [fence](benchmark::State& state) { CompareBlocked(state, fence); })
      ->Arg(1)
      ->Arg(1000)
      ->UseManualTime()
      ->Iterations(200);
}

const bool kRegistered = [] {
  Register(FencePolicy::kMembarrier, "membarrier");
  Register(FencePolicy::kFull, "full");
  return true;
}();

}  // namespace
}  // namespace stillpoint::bench
