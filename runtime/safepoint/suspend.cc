#include "runtime/safepoint/suspend.h"

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "runtime/base/absl_string.h"
#include "runtime/safepoint/handshake.h"
#include "runtime/safepoint/handshake_call.h"
#include "runtime/thread/handshake_queue.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/suspension.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_handle.h"

namespace stillpoint {
namespace {

using Attempt = Suspensions::Attempt;

// The calling thread, if it is a member of that runtime.
Thread* CallingMember(const Registry& registry) {
  Thread* current = Thread::Current();
  if (current == nullptr || current->record().keep_alive.get() != &registry) {
    return nullptr;
  }
  return current;
}

// Lets everybody suspend the caller first who has asked for it.
Attempt TryInTurn(Suspensions& suspensions, Thread* caller, Thread& target) {
  while (true) {
    const Attempt attempt = suspensions.Try(caller, target);
    if (attempt != Attempt::kCallerSuspended) return attempt;
    const WaitScope waiting(caller);
    AwaitResume(*caller);
  }
}

}  // namespace

absl::StatusOr<HandshakeResult> SuspendThread(const HandshakeCall& call,
                                              const ThreadHandle& target) {
  if (absl::Status allowed = CheckMayAsk(call); !allowed.ok()) return allowed;
  if (absl::Status valid = CheckTarget(call, target); !valid.ok()) return valid;
  PinnedTarget pinned;
  Thread* const thread = pinned.Pin(*call.registry, target);
  if (thread == nullptr) return HandshakeResult::kGone;
  Suspensions& suspensions = call.registry->suspensions();
  Thread* const caller = CallingMember(*call.registry);
  if (call.world_stopped) {
    // It comes back from the stop past its poll word.
    if (suspensions.Try(nullptr, *thread) == Attempt::kClosed) {
      return CheckNotClosing(call);
    }
    return HandshakeResult::kDone;
  }
  if (thread == caller) {
    const WaitScope waiting(caller);
    if (suspensions.Try(nullptr, *thread) == Attempt::kClosed) {
      return CheckNotClosing(call);
    }
    AwaitResume(*thread);
    return HandshakeResult::kDone;
  }
  if (TryInTurn(suspensions, caller, *thread) == Attempt::kClosed) {
    return CheckNotClosing(call);
  }
  // It may be in managed code still: when this is through it is not, and looks
  // at the count before it is again.
  const absl::StatusOr<size_t> done =
      HandshakeWith(call, absl::MakeConstSpan(&target, 1), [](Thread&) {});
  if (!done.ok()) {
    suspensions.Resume(*thread);
    return done.status();
  }
  return *done == 1 ? HandshakeResult::kDone : HandshakeResult::kGone;
}

absl::StatusOr<HandshakeResult> RequestSuspension(const HandshakeCall& call,
                                                  const ThreadHandle& target) {
  if (absl::Status valid = CheckTarget(call, target); !valid.ok()) return valid;
  PinnedTarget pinned;
  Thread* const thread = pinned.Pin(*call.registry, target);
  if (thread == nullptr) return HandshakeResult::kGone;
  if (call.registry->suspensions().Try(nullptr, *thread) == Attempt::kClosed) {
    return CheckNotClosing(call);
  }
  return HandshakeResult::kDone;
}

absl::StatusOr<HandshakeResult> ResumeThread(const HandshakeCall& call,
                                             const ThreadHandle& target) {
  if (absl::Status valid = CheckTarget(call, target); !valid.ok()) return valid;
  PinnedTarget pinned;
  Thread* const thread = pinned.Pin(*call.registry, target);
  if (thread == nullptr) return HandshakeResult::kGone;
  if (!call.registry->suspensions().Resume(*thread)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "Resume of thread ", ToAbsl(thread->name()),
        ", which is not suspended: each Resume takes one Suspend back, and a "
        "shutdown takes back all"));
  }
  return HandshakeResult::kDone;
}

}  // namespace stillpoint
