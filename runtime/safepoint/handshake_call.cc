#include "runtime/safepoint/handshake_call.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/absl_string.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_handle.h"
#include "runtime/thread/wait_check.h"

namespace stillpoint {

absl::Status CheckNotClosing(const HandshakeCall& call) {
  if (!call.registry->closing()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("handshake ", ToAbsl(call.name),
                   " was requested after the runtime's shutdown had begun"));
}

absl::Status CheckMayAsk(const HandshakeCall& call) {
  if (call.world_stopped) return absl::OkStatus();
  const std::string what =
      absl::StrCat("requesting handshake ", ToAbsl(call.name));
  if (absl::Status allowed = CheckMayWait(what); !allowed.ok()) {
    return allowed;
  }
  return CheckNotClosing(call);
}

absl::Status CheckTarget(const HandshakeCall& call,
                         const ThreadHandle& target) {
  if (target.registry() == nullptr || target.registry() == call.registry) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("handshake ", ToAbsl(call.name),
                   " with a thread of another runtime: ask that one"));
}

Thread* PinnedTarget::Pin(Registry& registry, const ThreadHandle& handle) {
  if (handle.slot() == nullptr ||
      !registry.Pin(*handle.slot(), handle.generation())) {
    return nullptr;
  }
  registry_ = &registry;
  thread_ = handle.slot();
  return thread_;
}

}  // namespace stillpoint
