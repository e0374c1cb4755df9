// What the benchmarks of green threads share: a runtime, threads, and the two
// questions that each is asked under, which fence mode and which state.

#ifndef STILLPOINT_BENCH_GREEN_GREEN_WORLD_H_
#define STILLPOINT_BENCH_GREEN_GREEN_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "benchmark/benchmark.h"
#include "runtime/stillpoint.h"

namespace stillpoint::bench {

// Dies if there is none.
std::unique_ptr<Runtime> MakeGreenRuntime(FencePolicy fence, size_t carriers);

// Dies if it cannot be started.
ThreadHandle StartGreen(Runtime& runtime, absl::AnyInvocable<void()> body);

void JoinAll(const std::vector<ThreadHandle>& threads);

// Runs `body` in a green thread and waits for its end.
void RunGreen(Runtime& runtime, absl::FunctionRef<void()> body);

// The state in which a thread does what is measured.
enum class In { kNative, kManaged };

// Calls `body` in that state; in a thread of a runtime, in Native.
void Inside(In in, absl::FunctionRef<void()> body);

// Registers `body` as NAME/membarrier/native, NAME/full/managed, and so on.
// It is called once for each iteration, with a runtime that all iterations
// share, does some operations and returns how long one took in nanoseconds;
// that is what the benchmark shows as its time.
using Measure = double (*)(Runtime& runtime, In in);
void RegisterInAllModes(const std::string& name, size_t carriers,
                        Measure measure);

// One of those.
void RegisterGreen(const std::string& name, FencePolicy fence, size_t carriers,
                   In in, Measure measure);

}  // namespace stillpoint::bench

#endif  // STILLPOINT_BENCH_GREEN_GREEN_WORLD_H_
