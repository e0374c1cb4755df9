// What every request that is made of a thread has in common: who asks, whether
// it may, and the target, pinned.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_HANDSHAKE_CALL_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_HANDSHAKE_CALL_H_

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/base/clock.h"
#include "runtime/safepoint/watchdog.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_handle.h"

namespace stillpoint {

struct HandshakeCall {
  std::shared_ptr<Registry> registry;
  std::string_view name;
  // From an operation: the world is stopped, and nobody needs to be asked.
  bool world_stopped = false;
  // Told when a target is late; null only where nobody is waited for.
  std::shared_ptr<const Watchdog> watchdog = nullptr;
  // When to give up waiting for a target; DeadlineExceeded then.
  Deadline deadline = Deadline::Infinite();
};

// Whether the calling thread may ask now, and wait for the answer.
absl::Status CheckMayAsk(const HandshakeCall& call);

// FailedPrecondition once the runtime is being shut down.
absl::Status CheckNotClosing(const HandshakeCall& call);

// InvalidArgument for a thread of another runtime.
absl::Status CheckTarget(const HandshakeCall& call, const ThreadHandle& target);

// Pins a target for the length of a call.
class PinnedTarget {
 public:
  PinnedTarget() = default;
  ~PinnedTarget() {
    if (registry_ != nullptr) registry_->Unpin(*thread_);
  }
  PinnedTarget(const PinnedTarget&) = delete;
  PinnedTarget& operator=(const PinnedTarget&) = delete;

  // Null if it is gone.
  Thread* Pin(Registry& registry, const ThreadHandle& handle);

 private:
  Registry* registry_ = nullptr;
  Thread* thread_ = nullptr;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_HANDSHAKE_CALL_H_
