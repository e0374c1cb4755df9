#include "runtime/thread/wait_check.h"

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/absl_string.h"
#include "runtime/base/tls_block.h"
#include "runtime/lock/held_locks.h"

namespace stillpoint {

absl::Status CheckNotInHandshake(std::string_view what) {
  if (tls_block.handshake != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        ToAbsl(what), " from inside handshake ", ToAbsl(*tls_block.handshake),
        ": a closure may neither poll nor wait, and its thread may not stop "
        "there; do it before or after the handshake"));
  }
  return absl::OkStatus();
}

absl::Status CheckMayWait(std::string_view what) {
  if (absl::Status outside = CheckNotInHandshake(what); !outside.ok()) {
    return outside;
  }
  if (tls_block.vm_thread_of != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        ToAbsl(what),
        " from inside a VM operation: an operation may not wait for a thread, "
        "start one, attach or detach; do it before or after the stop"));
  }
  if (const RankedLock* held = InnermostHeldLock(); held != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(ToAbsl(what), " while holding ", ToAbsl(held->name()),
                     ": whoever is waited for may need it; release it first"));
  }
  if (tls_block.no_safepoint_depth != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        ToAbsl(what),
        " inside a NoSafepointScope: the thread may not stop there; close the "
        "scope first"));
  }
  return absl::OkStatus();
}

}  // namespace stillpoint
