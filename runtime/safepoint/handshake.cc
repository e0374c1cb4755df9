#include "runtime/safepoint/handshake.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "runtime/base/absl_string.h"
#include "runtime/base/check.h"
#include "runtime/safepoint/handshake_call.h"
#include "runtime/safepoint/handshake_round.h"
#include "runtime/thread/handshake_queue.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/temporary_member.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_handle.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/thread_snapshot.h"
#include "runtime/thread/wait_check.h"
#include "runtime/thread/wait_word.h"

namespace stillpoint {
namespace {

using Closure = absl::FunctionRef<void(Thread&)>;

absl::Status EndedError(const HandshakeCall& call) {
  if (!call.registry->control().closed.load()) {
    return absl::DeadlineExceededError(absl::StrCat(
        "handshake ", ToAbsl(call.name), ": a target has not polled in time"));
  }
  return absl::UnavailableError(absl::StrCat(
      "handshake ", ToAbsl(call.name),
      ": the runtime was shut down while it waited for a thread that does not "
      "poll; the closure may have run for others"));
}

// From an operation: each closure runs here and now.
bool RunInStoppedWorld(const HandshakeCall& call, Thread& target,
                       const Closure& closure) {
  HandshakeRequest request;
  request.name = call.name;
  request.closure = &closure;
  return target.record().handshakes.RunStopped(target, request);
}

size_t CountDone(absl::Span<const AwaitedHandshake> requests) {
  size_t done = 0;
  for (const AwaitedHandshake& request : requests) {
    // relaxed (M61): settled and looked at before.
    done += request.outcome.load(std::memory_order_relaxed) ==
            HandshakeRequest::kDone;
  }
  return done;
}

// FunctionRef calls what it refers to as const, which AnyInvocable is not.
struct ConstCall {
  void operator()(Thread& target) const { (*closure)(target); }
  absl::AnyInvocable<void(Thread&)>* closure;
};

// A request that nobody waits for. It shares its life with the call that makes
// it, which may still look whether it is queued.
struct AsyncHandshake : HandshakeRequest {
  AsyncHandshake(std::string_view own_name,
                 absl::AnyInvocable<void(Thread&)> own_closure,
                 absl::AnyInvocable<void(HandshakeResult)> own_callback)
      : owned_name(own_name),
        owned_closure(std::move(own_closure)),
        callback(std::move(own_callback)),
        call{&owned_closure},
        reference(call) {
    name = owned_name;
    closure = &reference;
    settled = &Settled;
  }

  static void Settled(HandshakeRequest& request, HandshakeResult result) {
    auto& self = static_cast<AsyncHandshake&>(request);
    const std::shared_ptr<AsyncHandshake> last = std::move(self.queued_share);
    if (self.callback) self.callback(result);
    // What they hold is destroyed by whoever settles it, not by the caller.
    self.owned_closure = nullptr;
    self.callback = nullptr;
  }

  const std::string owned_name;
  absl::AnyInvocable<void(Thread&)> owned_closure;
  absl::AnyInvocable<void(HandshakeResult)> callback;
  const ConstCall call;
  const Closure reference;
  std::shared_ptr<AsyncHandshake> queued_share;
};

}  // namespace

absl::StatusOr<size_t> HandshakeWith(const HandshakeCall& call,
                                     absl::Span<const ThreadHandle> targets,
                                     Closure closure) {
  if (absl::Status allowed = CheckMayAsk(call); !allowed.ok()) return allowed;
  for (const ThreadHandle& target : targets) {
    if (absl::Status valid = CheckTarget(call, target); !valid.ok()) {
      return valid;
    }
  }
  if (call.world_stopped) {
    size_t done = 0;
    for (const ThreadHandle& target : targets) {
      PinnedTarget pinned;
      Thread* thread = pinned.Pin(*call.registry, target);
      done += thread != nullptr && RunInStoppedWorld(call, *thread, closure);
    }
    return done;
  }
  // One target, the usual case, needs no memory.
  AwaitedHandshake one;
  PinnedTarget one_pinned;
  std::unique_ptr<AwaitedHandshake[]> many;
  std::unique_ptr<PinnedTarget[]> many_pinned;
  AwaitedHandshake* requests = &one;
  PinnedTarget* pinned = &one_pinned;
  if (targets.size() > 1) {
    many = std::make_unique<AwaitedHandshake[]>(targets.size());
    many_pinned = std::make_unique<PinnedTarget[]>(targets.size());
    requests = many.get();
    pinned = many_pinned.get();
  }
  // A proxy has to be a member.
  const TemporaryMember caller(*call.registry, "handshaker");
  if (!caller.status().ok()) return caller.status();
  HandshakeRound round(Thread::CurrentOrDie(), call.watchdog.get(), call.name,
                       call.deadline);
  for (size_t i = 0; i < targets.size(); ++i) {
    requests[i].target = pinned[i].Pin(*call.registry, targets[i]);
    if (requests[i].target == nullptr) continue;
    requests[i].name = call.name;
    requests[i].closure = &closure;
    round.Ask(requests[i]);
  }
  if (!round.Await()) return EndedError(call);
  return CountDone(absl::MakeConstSpan(requests, targets.size()));
}

absl::StatusOr<size_t> HandshakeWithAll(const HandshakeCall& call,
                                        Closure closure) {
  if (absl::Status allowed = CheckMayAsk(call); !allowed.ok()) return allowed;
  // Before the caller is one of them only for this call.
  const ThreadSnapshot members = ThreadSnapshot::Take(call.registry);
  if (call.world_stopped) {
    size_t done = 0;
    for (const PinnedThread& member : members) {
      done += RunInStoppedWorld(call, member.thread(), closure);
    }
    return done;
  }
  const auto requests = std::make_unique<AwaitedHandshake[]>(members.size());
  const TemporaryMember caller(*call.registry, "handshaker");
  if (!caller.status().ok()) return caller.status();
  HandshakeRound round(Thread::CurrentOrDie(), call.watchdog.get(), call.name,
                       call.deadline);
  AwaitedHandshake* request = requests.get();
  for (const PinnedThread& member : members) {
    request->name = call.name;
    request->closure = &closure;
    request->target = &member.thread();
    round.Ask(*request++);
  }
  if (!round.Await()) return EndedError(call);
  return CountDone(absl::MakeConstSpan(requests.get(), members.size()));
}

absl::Status RequestHandshake(
    const HandshakeCall& call, const ThreadHandle& target,
    absl::AnyInvocable<void(Thread&)> closure,
    absl::AnyInvocable<void(HandshakeResult)> settled) {
  if (!closure) {
    return absl::InvalidArgumentError("HandshakeAsync needs a closure to run");
  }
  if (absl::Status allowed = CheckMayAsk(call); !allowed.ok()) return allowed;
  if (absl::Status valid = CheckTarget(call, target); !valid.ok()) return valid;
  PinnedTarget pinned;
  Thread* thread = pinned.Pin(*call.registry, target);
  if (call.world_stopped) {
    const bool done = thread != nullptr &&
                      RunInStoppedWorld(call, *thread, ConstCall{&closure});
    if (settled) {
      settled(done ? HandshakeResult::kDone : HandshakeResult::kGone);
    }
    return absl::OkStatus();
  }
  const TemporaryMember caller(*call.registry, "handshaker");
  if (!caller.status().ok()) return caller.status();
  const auto request = std::make_shared<AsyncHandshake>(
      call.name, std::move(closure), std::move(settled));
  request->queued_share = request;
  if (thread == nullptr || !thread->record().handshakes.Push(*request)) {
    request->queued_share = nullptr;
    HandshakeQueue::TellGone(*request);
    return absl::OkStatus();
  }
  HandshakeRound(Thread::CurrentOrDie(), nullptr, call.name)
      .ProxyOnce(*thread, *request);
  return absl::OkStatus();
}

absl::Status InterruptByHandshake(
    const HandshakeCall& call, const ThreadHandle& target,
    absl::AnyInvocable<void(Thread&)> closure,
    absl::AnyInvocable<void(HandshakeResult)> settled) {
  if (!closure) {
    return absl::InvalidArgumentError("InterruptWith needs a closure to run");
  }
  if (absl::Status outside = CheckNotInHandshake("InterruptWith");
      !outside.ok()) {
    return outside;
  }
  if (absl::Status open = CheckNotClosing(call); !open.ok()) return open;
  if (absl::Status valid = CheckTarget(call, target); !valid.ok()) return valid;
  const auto request = std::make_shared<AsyncHandshake>(
      call.name, std::move(closure), std::move(settled));
  request->queued_share = request;
  PinnedTarget pinned;
  Thread* thread = pinned.Pin(*call.registry, target);
  if (thread == nullptr || !thread->record().handshakes.Push(*request)) {
    request->queued_share = nullptr;
    HandshakeQueue::TellGone(*request);
    return absl::OkStatus();
  }
  // No proxy: a request without a waiter is tried by nobody else. Armed before
  // the wait is ended, so that the target runs the closure on its way back from
  // it. release (M60): as in HandshakeRound.
  thread->poll_word().fetch_or(kPollHandshake, std::memory_order_release);
  thread->record().wait.Set(WaitWord::kInterrupt);
  return absl::OkStatus();
}

}  // namespace stillpoint
