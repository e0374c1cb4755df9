#include "runtime/thread/timer_slack.h"

#include <errno.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/absl_string.h"
#include "runtime/base/tls_block.h"
#include "runtime/os/timer_slack.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"

namespace stillpoint {
namespace {

absl::Status RefusedError(const char* call) {
  return absl::FailedPreconditionError(
      absl::StrCat("prctl(", call, ") is refused: ", std::strerror(errno),
                   "; the thread keeps the timer slack that it has. Let the "
                   "seccomp filter allow it, or leave timer_slack unset"));
}

}  // namespace

absl::StatusOr<std::chrono::nanoseconds> CurrentTimerSlack() {
  const std::optional<uint64_t> slack = ReadTimerSlack();
  if (!slack.has_value()) return RefusedError("PR_GET_TIMERSLACK");
  // The kernel takes values that a signed number does not hold.
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  return std::chrono::nanoseconds(*slack < kMax ? *slack : kMax);
}

absl::Status SetCurrentTimerSlack(std::chrono::nanoseconds slack) {
  if (absl::Status valid = CheckTimerSlack(slack); !valid.ok()) return valid;
  const Thread* current = Thread::Current();
  if (current != nullptr && current->kind() == ThreadKind::kGreen) {
    return absl::FailedPreconditionError(
        "a green thread has no timer slack of its own: set the option "
        "timer_slack of the runtime, which its carriers have");
  }
  const bool borrowed = current != nullptr && current->record().foreign &&
                        !tls_block.slack_borrowed;
  std::optional<uint64_t> own;
  if (borrowed) {
    // What cannot be given back is not taken.
    own = ReadTimerSlack();
    if (!own.has_value()) return RefusedError("PR_GET_TIMERSLACK");
  }
  if (!WriteTimerSlack(static_cast<uint64_t>(slack.count()))) {
    return RefusedError("PR_SET_TIMERSLACK");
  }
  if (borrowed) {
    tls_block.slack_borrowed = true;
    tls_block.own_slack = *own;
  }
  return absl::OkStatus();
}

absl::Status CheckTimerSlack(std::chrono::nanoseconds slack) {
  if (slack >= kMinTimerSlack && slack <= kMaxTimerSlack) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a timer slack of ", slack.count(), " ns: allowed are ",
                   kMinTimerSlack.count(), " to ", kMaxTimerSlack.count(),
                   " ns: ", ToAbsl(kTimerSlackReason)));
}

void RestoreTimerSlack() {
  if (!tls_block.slack_borrowed) return;
  tls_block.slack_borrowed = false;
  // 0, from a thread that was a real-time one, is right as well: if it is none
  // any more, its default is what the kernel would have given it. A refusal
  // costs the thread its slack and nothing else.
  (void)WriteTimerSlack(tls_block.own_slack);
}

}  // namespace stillpoint
