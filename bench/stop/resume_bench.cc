// Ways to let a stopped world go, with many more mutators than processors: when
// is the stopper free, and when does the last mutator run? Each beside a
// wake-all, stop by stop on the same threads.

#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "bench/stop/bare_stop.h"
#include "bench/stop/busy_world.h"
#include "bench/support/comparison.h"
#include "benchmark/benchmark.h"

namespace stillpoint::bench {
namespace {

constexpr uint32_t kMutators = 64;
constexpr std::chrono::milliseconds kPause(2);

// The stopping thread's own place in the scheduler.
enum class Stopper {
  kPlain,
  kShortSlice,  // asks for turns of 0.1 ms (sched_setattr, Linux 6.12): they
                // are short, but come sooner
  kPriority,    // nice -10, where permitted
};

// The first version of sched_setattr's argument (sched_setattr(2)); the libc
// has neither it nor the call, and the kernel's own header does not go with the
// libc's.
struct SchedAttributes {
  uint32_t size = sizeof(SchedAttributes);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // of SCHED_OTHER: the slice
  uint64_t deadline = 0;
  uint64_t period = 0;
};

int SetSlice(uint64_t nanos) {
  SchedAttributes attributes;
  attributes.runtime = nanos;
  return static_cast<int>(syscall(SYS_sched_setattr, 0, &attributes, 0));
}

// Gives this thread that place until the end of the scope.
class StopperScope {
 public:
  explicit StopperScope(Stopper stopper) : stopper_(stopper) {
    int result = 0;
    switch (stopper) {
      case Stopper::kPlain:
        return;
      case Stopper::kShortSlice:
        result = SetSlice(100'000);
        break;
      case Stopper::kPriority:
        result = setpriority(PRIO_PROCESS, 0, -10);
        break;
    }
    if (result != 0) refused_ = std::strerror(errno);
  }
  ~StopperScope() {
    if (stopper_ == Stopper::kShortSlice) SetSlice(0);
    if (stopper_ == Stopper::kPriority) setpriority(PRIO_PROCESS, 0, 0);
  }
  StopperScope(const StopperScope&) = delete;
  StopperScope& operator=(const StopperScope&) = delete;

  // Empty if granted.
  const std::string& refused() const { return refused_; }

 private:
  const Stopper stopper_;
  std::string refused_;
};

using Stop = std::function<StopTimes(BusyWorld&)>;

void CompareResume(benchmark::State& state, const Stop& stop, Stopper stopper) {
  // The mutators are started before, and so are plain.
  BusyWorld world(kMutators);
  Samples free, last, wake_all_free, wake_all_last;
  for (auto _ : state) {
    {
      StopperScope place(stopper);
      if (!place.refused().empty()) {
        state.SkipWithError(place.refused().c_str());
        break;
      }
      std::this_thread::sleep_for(kPause);
      const StopTimes times = stop(world);
      free.Add(static_cast<double>(times.stopper_free));
      last.Add(static_cast<double>(times.last_runs));
      state.SetIterationTime(static_cast<double>(times.last_runs) / 1e9);
    }
    std::this_thread::sleep_for(kPause);
    const StopTimes times = world.StopBare();
    wake_all_free.Add(static_cast<double>(times.stopper_free));
    wake_all_last.Add(static_cast<double>(times.last_runs));
  }
  if (free.empty()) return;
  const auto report = [&state](const std::string& name, const Samples& samples,
                               const Samples& wake_all) {
    state.counters[name + "_p50"] = samples.Quantile(0.5);
    state.counters[name + "_p99"] = samples.Quantile(0.99);
    state.counters[name + "_ratio"] =
        samples.Quantile(0.5) / wake_all.Quantile(0.5);
  };
  report("free", free, wake_all_free);
  report("last", last, wake_all_last);
}

void Register(const std::string& name, const Stop& stop, Stopper stopper) {
  benchmark::RegisterBenchmark(("BM_Resume/" + name).c_str(),
                               [stop, stopper](benchmark::State& state) {
                                 CompareResume(state, stop, stopper);
                               })
      ->UseManualTime()
      ->Iterations(20);
}

const bool kRegistered = [] {
  const Stop ours = [](BusyWorld& world) { return world.StopOurs(); };
  const auto bare = [](ResumePolicy policy) -> Stop {
    return [policy](BusyWorld& world) { return world.StopBare(policy); };
  };
  const int processors = AllowedCpuCount();
  Register("ours", ours, Stopper::kPlain);
  Register("ours_short_slice", ours, Stopper::kShortSlice);
  Register("ours_priority", ours, Stopper::kPriority);
  Register("wake_all_short_slice", bare({}), Stopper::kShortSlice);
  Register("wake_all_priority", bare({}), Stopper::kPriority);
  Register("chain_of_1", bare({.wakes = 1, .fan_out = 1}), Stopper::kPlain);
  Register("tree_of_2", bare({.wakes = 1, .fan_out = 2}), Stopper::kPlain);
  Register("chain_of_2", bare({.wakes = processors, .fan_out = 2}),
           Stopper::kPlain);
  Register("chain_of_8", bare({.wakes = processors, .fan_out = 8}),
           Stopper::kPlain);
  Register("batches_of_8", bare({.wakes = 8, .in_batches = true}),
           Stopper::kPlain);
  return true;
}();

}  // namespace
}  // namespace stillpoint::bench
