// The worst stops since the runtime began.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_STOP_HISTORY_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_STOP_HISTORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "runtime/base/event_sink.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"

namespace stillpoint {

struct WorstStop {
  SafepointRecord record;
  // What it waited for, in words.
  std::string reason;
};

// Ten, by time to safepoint. Thread-safe; any state.
class StopHistory {
 public:
  static constexpr size_t kKept = 10;

  StopHistory() = default;
  StopHistory(const StopHistory&) = delete;
  StopHistory& operator=(const StopHistory&) = delete;

  // The stopper, after a stop; `late`: what the watchdog said of it, or empty.
  void Note(const SafepointRecord& record, std::string_view late);

  // The longest first.
  std::vector<WorstStop> Worst() const;

  void ResetInForkedChild() { lock_.ResetInForkedChild(); }

 private:
  using Kept = std::array<std::shared_ptr<const WorstStop>, kKept>;

  mutable RankedMutex lock_{kStopHistoryLockRank};
  // Null ones last. Shared, so that nothing is copied or freed under the lock.
  Kept worst_ ABSL_GUARDED_BY(lock_);
  int64_t bar_ = 0;  // the stopper's: no better than this is kept
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_STOP_HISTORY_H_
