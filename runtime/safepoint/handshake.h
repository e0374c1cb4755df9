// Handshakes: something done with one thread while it cannot run managed code,
// without stopping the others. Embedders call them on their Runtime.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_HANDSHAKE_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_HANDSHAKE_H_

#include <cstddef>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/safepoint/handshake_call.h"
#include "runtime/thread/handshake_queue.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_handle.h"

namespace stillpoint {

// See Runtime::Handshake: how many of the handshakes are done; the other
// targets are gone.
absl::StatusOr<size_t> HandshakeWith(const HandshakeCall& call,
                                     absl::Span<const ThreadHandle> targets,
                                     absl::FunctionRef<void(Thread&)> closure);

// See Runtime::HandshakeAll.
absl::StatusOr<size_t> HandshakeWithAll(
    const HandshakeCall& call, absl::FunctionRef<void(Thread&)> closure);

// See Runtime::HandshakeAsync.
absl::Status RequestHandshake(
    const HandshakeCall& call, const ThreadHandle& target,
    absl::AnyInvocable<void(Thread&)> closure,
    absl::AnyInvocable<void(HandshakeResult)> settled);

// See Runtime::InterruptWith.
absl::Status InterruptByHandshake(
    const HandshakeCall& call, const ThreadHandle& target,
    absl::AnyInvocable<void(Thread&)> closure,
    absl::AnyInvocable<void(HandshakeResult)> settled);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_HANDSHAKE_H_
