#include "runtime/thread/interrupt.h"

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/absl_string.h"

namespace stillpoint {

absl::Status InterruptedError(std::string_view what) {
  return absl::CancelledError(absl::StrCat("Interrupted: ", ToAbsl(what),
                                           " was ended by an interrupt"));
}

bool IsInterrupted(const absl::Status& status) {
  return absl::IsCancelled(status);
}

}  // namespace stillpoint
