#include "bench/green/green_world.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "bench/support/comparison.h"
#include "benchmark/benchmark.h"
#include "runtime/base/check.h"
#include "runtime/stillpoint.h"

namespace stillpoint::bench {

namespace {

constexpr int kIterations = 20;

}  // namespace

std::unique_ptr<Runtime> MakeGreenRuntime(FencePolicy fence, size_t carriers) {
  Options options;
  options.fence = fence;
  options.carriers = carriers;
  // What is measured is not held up in native code, but an OS thread that the
  // system takes off its processor looks like it.
  options.extra_carriers = 0;
  // So many and no more: a body that spins in Native is native code to the
  // monitor, which would get another carrier for those that wait.
  options.extra_carriers = 0;
  options.min_mutator_time = std::chrono::nanoseconds(0);
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create(options);
  STILLPOINT_CHECK(runtime.ok(), "no runtime for the benchmark");
  return *std::move(runtime);
}

ThreadHandle StartGreen(Runtime& runtime, absl::AnyInvocable<void()> body) {
  absl::StatusOr<ThreadHandle> thread =
      runtime.Start({.kind = ThreadKind::kGreen}, std::move(body));
  STILLPOINT_CHECK(thread.ok(), "no green thread for the benchmark");
  return *std::move(thread);
}

void JoinAll(const std::vector<ThreadHandle>& threads) {
  for (const ThreadHandle& thread : threads) {
    STILLPOINT_CHECK(thread.Join().ok(), "a join of the benchmark failed");
  }
}

void RunGreen(Runtime& runtime, absl::FunctionRef<void()> body) {
  JoinAll({StartGreen(runtime, [body] { body(); })});
}

void Inside(In in, absl::FunctionRef<void()> body) {
  if (in == In::kNative) return body();
  ManagedScope managed;
  body();
}

void RegisterGreen(const std::string& name, FencePolicy fence, size_t carriers,
                   In in, Measure measure) {
  benchmark::RegisterBenchmark(
      name.c_str(),
      [fence, carriers, in, measure](benchmark::State& state) {
        const std::unique_ptr<Runtime> runtime =
            MakeGreenRuntime(fence, carriers);
        // Carriers are started, stacks are made.
        (void)measure(*runtime, in);
        Samples samples;
        for (auto _ : state) {
          const double nanos = measure(*runtime, in);
          samples.Add(nanos);
          state.SetIterationTime(nanos / 1e9);
        }
        state.counters["p50"] = samples.Quantile(0.5);
      })
      ->UseManualTime()
      ->Iterations(kIterations);
}

void RegisterInAllModes(const std::string& name, size_t carriers,
                        Measure measure) {
  for (const auto& [fence, fence_name] :
       {std::pair(FencePolicy::kMembarrier, "/membarrier"),
        std::pair(FencePolicy::kFull, "/full")}) {
    for (const auto& [in, in_name] : {std::pair(In::kNative, "/native"),
                                      std::pair(In::kManaged, "/managed")}) {
      RegisterGreen(name + fence_name + in_name, fence, carriers, in, measure);
    }
  }
}

}  // namespace stillpoint::bench
