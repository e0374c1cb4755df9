// A storm of starting threads against a safepoint at regular intervals.

#ifndef STILLPOINT_EXAMPLES_STORM_STORM_H_
#define STILLPOINT_EXAMPLES_STORM_STORM_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/event_sink.h"
#include "runtime/base/histogram.h"
#include "runtime/stillpoint.h"

namespace stillpoint::storm {

struct StormConfig {
  int starters = 64;
  int alive = 16;  // unfinished threads that each starter keeps at most
  int busy = 1;    // mutators that run all the time
  std::chrono::microseconds work{20};
  std::chrono::milliseconds interval{5};
  std::chrono::duration<double> length{3.0};
  size_t stack_size = 0;
  // Where each stop is reported too; may be null.
  EventSink* log = nullptr;
};

struct StormResult {
  std::string protocol;
  int starters = 0;
  double seconds = 0;
  uint64_t starts = 0;
  uint64_t failed_starts = 0;
  std::string first_failure;
  Histogram threads_lock_wait;
  Histogram time_to_safepoint;
  uint64_t violations = 0;

  uint64_t safepoints() const { return time_to_safepoint.count(); }
  double starts_per_second() const {
    return seconds > 0 ? static_cast<double>(starts) / seconds : 0;
  }
};

// Runs one storm under `protocol`. `stop` ends it early, with the results so
// far. `progress` is called a few times a second on the calling thread.
absl::StatusOr<StormResult> RunStorm(
    const StormConfig& config, StartProtocol protocol,
    const std::atomic<bool>& stop,
    const std::function<void(double seconds, uint64_t starts)>& progress);

}  // namespace stillpoint::storm

#endif  // STILLPOINT_EXAMPLES_STORM_STORM_H_
