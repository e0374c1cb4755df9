#include "runtime/thread/park.h"

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/clock.h"
#include "runtime/thread/interrupt.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/wait_check.h"
#include "runtime/thread/wait_word.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

absl::Status Park(Deadline deadline) {
  if (absl::Status allowed = CheckMayWait("Park"); !allowed.ok()) {
    return allowed;
  }
  Thread* current = Thread::Current();
  if (current == nullptr) {
    return absl::FailedPreconditionError(
        "Park on a thread that is not attached: call "
        "Runtime::AttachCurrentThread first");
  }
  WaitWord& word = current->record().wait;
  const WaitScope waiting(current, WaitingFor(WaitKind::kPermit));
  const uint32_t bits =
      word.Wait(WaitWord::kPermit | WaitWord::kInterrupt, deadline);
  if ((bits & WaitWord::kInterrupt) != 0) {
    word.Take(WaitWord::kInterrupt);
    return InterruptedError("Park");
  }
  if (bits == 0) return absl::DeadlineExceededError("no permit came in time");
  word.Take(WaitWord::kPermit);
  return absl::OkStatus();
}

}  // namespace stillpoint
