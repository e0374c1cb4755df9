#include "runtime/sync/waiter.h"

#include <cstdint>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/absl_string.h"
#include "runtime/thread/interrupt.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/wait_word.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

absl::Status WaitError(WaitResult result, std::string_view what) {
  switch (result) {
    case WaitResult::kDone:
      return absl::OkStatus();
    case WaitResult::kInterrupted:
      return InterruptedError(what);
    case WaitResult::kTimedOut:
      return absl::DeadlineExceededError(
          absl::StrCat(ToAbsl(what), " waited until its deadline"));
  }
  return absl::InternalError("no such result");
}

WaitResult Waiter::Wait(WaitingFor what, const WaitLimits& limits,
                        absl::FunctionRef<void()> get_behind) {
  const uint32_t mask =
      WaitWord::kEvent |
      (limits.interruptible ? uint32_t{WaitWord::kInterrupt} : 0);
  const WaitScope waiting(thread_, what);
  while (true) {
    const uint32_t bits = word_.Wait(mask, limits.deadline);
    if ((bits & WaitWord::kEvent) != 0) {
      word_.Take(WaitWord::kEvent);
      if (done()) return WaitResult::kDone;
      // The event of an earlier wait, or who completes is just between event
      // and "done": behind the lock that is decided.
      get_behind();
      if (done()) return WaitResult::kDone;
      if (bits == WaitWord::kEvent) continue;
    }
    return bits == 0 ? WaitResult::kTimedOut : WaitResult::kInterrupted;
  }
}

}  // namespace stillpoint
