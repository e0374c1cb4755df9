#include "runtime/safepoint/stop_history.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/absl_string.h"
#include "runtime/base/event_sink.h"
#include "runtime/lock/ranked_mutex.h"

namespace stillpoint {
namespace {

std::string Reason(const SafepointRecord& record, std::string_view late) {
  if (!late.empty()) return std::string(late);
  if (record.lock_wait > record.reaching) return "waited for Threads_lock";
  if (record.last_thread[0] == '\0') return "no thread was running";
  return absl::StrCat("thread \"", record.last_thread, "\" came last, after ",
                      record.last_thread_delay, " ns");
}

}  // namespace

void StopHistory::Note(const SafepointRecord& record, std::string_view late) {
  if (record.time_to_safepoint() <= bar_) return;
  // Takes the place of a better one, which takes that of the next; the best of
  // all is left over, and freed when the lock is.
  auto moving = std::make_shared<const WorstStop>(
      WorstStop{record, Reason(record, late)});
  {
    RankedMutexLock lock(lock_);
    for (std::shared_ptr<const WorstStop>& kept : worst_) {
      if (kept == nullptr || kept->record.time_to_safepoint() <
                                 moving->record.time_to_safepoint()) {
        kept.swap(moving);
        if (moving == nullptr) return;
      }
    }
    bar_ = worst_.back()->record.time_to_safepoint();
  }
}

std::vector<WorstStop> StopHistory::Worst() const {
  Kept kept;
  {
    RankedMutexLock lock(lock_);
    kept = worst_;
  }
  std::vector<WorstStop> worst;
  for (const std::shared_ptr<const WorstStop>& stop : kept) {
    if (stop != nullptr) worst.push_back(*stop);
  }
  return worst;
}

}  // namespace stillpoint
