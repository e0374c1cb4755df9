// The status of an interrupted wait.

#ifndef STILLPOINT_RUNTIME_THREAD_INTERRUPT_H_
#define STILLPOINT_RUNTIME_THREAD_INTERRUPT_H_

#include <string_view>

#include "absl/status/status.h"

namespace stillpoint {

// "Interrupted: <what> was ended by an interrupt". Code Cancelled, which the
// runtime uses for nothing else.
absl::Status InterruptedError(std::string_view what);

// Whether `status` says that a wait of the runtime was ended by an interrupt.
bool IsInterrupted(const absl::Status& status);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_INTERRUPT_H_
