// Suspending threads and letting them go on. Embedders call these on their
// Runtime.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_SUSPEND_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_SUSPEND_H_

#include "absl/status/statusor.h"
#include "runtime/safepoint/handshake_call.h"
#include "runtime/thread/handshake_queue.h"
#include "runtime/thread/thread_handle.h"

namespace stillpoint {

// See Runtime::Suspend.
absl::StatusOr<HandshakeResult> SuspendThread(const HandshakeCall& call,
                                              const ThreadHandle& target);

// See Runtime::SuspendAsync.
absl::StatusOr<HandshakeResult> RequestSuspension(const HandshakeCall& call,
                                                  const ThreadHandle& target);

// See Runtime::Resume.
absl::StatusOr<HandshakeResult> ResumeThread(const HandshakeCall& call,
                                             const ThreadHandle& target);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_SUSPEND_H_
