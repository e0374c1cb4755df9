// Handshakes: something done with one thread while it cannot run managed code,
// without stopping the others. Embedders call them on their Runtime.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_HANDSHAKE_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_HANDSHAKE_H_

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/thread/handshake_queue.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_handle.h"

namespace stillpoint {

// Who asks, for all three functions below.
struct HandshakeCall {
  std::shared_ptr<Registry> registry;
  std::string_view name;
  // From an operation: the world is stopped, and nobody needs to be asked.
  bool world_stopped = false;
};

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

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_HANDSHAKE_H_
