// What managed code pays all the time: scopes, polls, uncontended locks. Each
// beside the least that could do the same work.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "bench/support/comparison.h"
#include "benchmark/benchmark.h"
#include "runtime/base/check.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/stillpoint.h"

namespace stillpoint {
namespace {

// Too short for the clock one by one.
constexpr int kOperations = 10000;
constexpr bench::Turns kTurns = {.operations = kOperations};

template <typename Function>
[[gnu::noinline]] void Repeat(Function function) {
  for (int i = 0; i < kOperations; ++i) function();
}

// A runtime with the fence mode of the benchmark's argument; null, with the
// benchmark skipped, where the kernel refuses that.
std::unique_ptr<Runtime> MakeRuntime(benchmark::State& state) {
  Options options;
  options.fence =
      state.range(0) != 0 ? FencePolicy::kFull : FencePolicy::kMembarrier;
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create(options);
  if (!runtime.ok()) {
    state.SkipWithError("the kernel refuses this fence mode");
    return nullptr;
  }
  state.SetLabel(state.range(0) != 0 ? "full" : "membarrier");
  return *std::move(runtime);
}

// Out of a state and back: two stores, and in full mode a fence.
std::atomic<uint32_t> bare_word{0};

void BareRoundTripFull() {
  Repeat([] {
    bare_word.store(2, std::memory_order_release);
    bare_word.exchange(3, std::memory_order_seq_cst);
  });
}

void BareRoundTripUnfenced() {
  Repeat([] {
    bare_word.store(2, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    bare_word.store(3, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  });
}

template <typename Ours>
void CompareRoundTrip(benchmark::State& state, Ours ours) {
  bench::Compare(
      state, kTurns, ours,
      state.range(0) != 0 ? BareRoundTripFull : BareRoundTripUnfenced);
}

void NativeRoundTrip(benchmark::State& state) {
  std::unique_ptr<Runtime> runtime = MakeRuntime(state);
  if (runtime == nullptr) return;
  AttachScope attached(*runtime, "bench");
  Thread& self = Thread::CurrentOrDie();
  ManagedScope managed(self);
  CompareRoundTrip(state,
                   [&self] { Repeat([&self] { NativeScope native(self); }); });
}
BENCHMARK(NativeRoundTrip)->ArgName("full")->Arg(1)->Arg(0)->UseManualTime();

void ManagedRoundTrip(benchmark::State& state) {
  std::unique_ptr<Runtime> runtime = MakeRuntime(state);
  if (runtime == nullptr) return;
  AttachScope attached(*runtime, "bench");
  Thread& self = Thread::CurrentOrDie();
  CompareRoundTrip(
      state, [&self] { Repeat([&self] { ManagedScope managed(self); }); });
}
BENCHMARK(ManagedRoundTrip)->ArgName("full")->Arg(1)->Arg(0)->UseManualTime();

// The same body with and without a poll: `length` dependent steps.
template <int length, typename End>
[[gnu::noinline]] void Loop(End end) {
  uint64_t value = 1;
  for (int i = 0; i < kOperations; ++i) {
    for (int step = 0; step < length; ++step) {
      value = value * 0x9e3779b97f4a7c15 + 1;
    }
    asm volatile("" : "+r"(value));
    end();
  }
}

template <int length>
void PollIn(benchmark::State& state) {
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create();
  STILLPOINT_CHECK(runtime.ok(), "no runtime");
  AttachScope attached(**runtime, "bench");
  Thread& self = Thread::CurrentOrDie();
  ManagedScope managed(self);
  bench::Compare(
      state, kTurns, [&self] { Loop<length>([&self] { Poll(self); }); },
      [] { Loop<length>([] {}); });
  state.counters["poll_p50"] =
      state.counters["ours_p50"] - state.counters["limit_p50"];
}
BENCHMARK(PollIn<0>)->Name("PollInEmptyLoop")->UseManualTime();
BENCHMARK(PollIn<4>)->Name("PollInShortLoop")->UseManualTime();

constexpr LockRank kBenchRank = {"bench", kFirstEmbedderRank,
                                 "measured by transition_bench"};

void LockAndUnlock(benchmark::State& state) {
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create();
  STILLPOINT_CHECK(runtime.ok(), "no runtime");
  AttachScope attached(**runtime, "bench");
  RankedMutex ranked(kBenchRank);
  std::mutex bare;
  bench::Compare(
      state, kTurns,
      [&ranked] { Repeat([&ranked] { RankedMutexLock lock(ranked); }); },
      [&bare] { Repeat([&bare] { std::lock_guard<std::mutex> lock(bare); }); });
}
BENCHMARK(LockAndUnlock)->UseManualTime();

}  // namespace
}  // namespace stillpoint
