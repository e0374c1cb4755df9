#include "runtime/safepoint/handshake_round.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/base/thread_state.h"
#include "runtime/safepoint/serve.h"
#include "runtime/safepoint/wait_bounds.h"
#include "runtime/thread/handshake_queue.h"
#include "runtime/thread/saved_context.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/transition.h"
#include "runtime/thread/wait_word.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {
namespace {

HandshakeQueue& QueueOf(Thread& thread) { return thread.record().handshakes; }

void Arm(Thread& target, uint32_t bits) {
  // release (M10, M60): who finds the bit in its exchange finds what was queued
  // before, too.
  target.poll_word().fetch_or(bits, std::memory_order_release);
}

}  // namespace

HandshakeRound::HandshakeRound(Thread& self, const Watchdog* watchdog,
                               std::string_view name, Deadline deadline)
    : self_(self),
      control_(self.control()),
      before_(self.state()),
      managed_(before_ == ThreadState::kManaged),
      watchdog_(watchdog),
      name_(name),
      deadline_(deadline) {}

void HandshakeRound::Ask(AwaitedHandshake& request) {
  Thread& target = *request.target;
  request.waiter = &self_.record().wait;
  if (&target != &self_) {
    if (!QueueOf(target).Push(request)) {
      // relaxed (M61): the requester's own.
      request.outcome.store(HandshakeRequest::kGone, std::memory_order_relaxed);
      return;
    }
    Arm(target, kPollHandshake);
  }
  request.next = pending_;
  pending_ = &request;
  ++pending_count_;
}

bool HandshakeRound::Await() {
  // In this frame, which is there until the thread is back in managed code; no
  // such code runs in between, so each later change of state leaves the context
  // alone. A Native caller's is that of its last way out of Managed, still.
  if (managed_) SaveContext(self_.record().saved);
  bool ended = false;
  while (true) {
    const bool safe_seen = DropSettled();
    if (pending_ == nullptr) break;
    if (safe_seen) {
      OrderOnce();
      if (!BecomeManaged()) {
        ended = true;
        break;
      }
      if (ProxyThoseSafe()) continue;
    }
    BecomeBlocked();
    // For a claim that another requester has there is no spinning.
    if (!safe_seen && SpinsStill()) continue;
    if (!announced_) {
      Announce();  // and look again
      continue;
    }
    Sleep();
    if (control_.closed.load() || deadline_.passed()) {
      ended = true;
      break;
    }
  }
  if (ended) WithdrawRest();
  GoBack();
  return !ended;
}

void HandshakeRound::ProxyOnce(Thread& target, HandshakeRequest& request) {
  Arm(target, kPollHandshake);
  const auto is_safe = [&target] {
    const ThreadState state = target.state();
    return IsSafe(state) && IsMember(state);
  };
  if (!is_safe()) return;
  OrderOnce();
  if (!is_safe()) return;
  if (managed_) SaveContext(self_.record().saved);
  if (BecomeManaged() && QueueOf(target).TryClaim(request)) {
    QueueOf(target).RunClaimed(target, request);
  }
  GoBack();
}

bool HandshakeRound::MayProxy(const AwaitedHandshake& request) const {
  if (request.target == &self_) return true;
  // acquire (in state(); M7, M60): what the target did before it became safe is
  // seen by the closure.
  const ThreadState state = request.target->state();
  // Who is Terminated is about to say that it is gone.
  return IsSafe(state) && IsMember(state);
}

bool HandshakeRound::DropSettled() {
  bool safe_seen = false;
  for (AwaitedHandshake** link = &pending_; *link != nullptr;) {
    AwaitedHandshake& request = **link;
    // acquire (M61): with the outcome comes what the closure did.
    if (HandshakeRequest::IsSettled(
            request.outcome.load(std::memory_order_acquire))) {
      *link = request.next;
      --pending_count_;
      continue;
    }
    safe_seen = safe_seen || MayProxy(request);
    link = &request.next;
  }
  return safe_seen;
}

void HandshakeRound::OrderOnce() {
  // The requester's half of the pair with *entering* (M60). Not before a target
  // has been seen safe: one that polls needs none, and a membarrier would
  // interrupt it. One for all of them, since each was armed before.
  if (ordered_) return;
  ordered_ = true;
  control_.OrderAll();
}

bool HandshakeRound::BecomeManaged() {
  if (managed_) return true;
  managed_ = EnterManagedUnlessClosed(self_);
  return managed_;
}

void HandshakeRound::BecomeBlocked() {
  if (managed_) {
    StepBack(self_);
    managed_ = false;
    // relaxed (M26): the owner reads its own word.
  } else if (self_.state_word().load(std::memory_order_relaxed) !=
             ThreadState::kBlocked) {
    // release (M7): safe to safe.
    self_.state_word().store(ThreadState::kBlocked, std::memory_order_release);
  }
}

void HandshakeRound::GoBack() {
  if (before_ == ThreadState::kManaged) {
    if (!managed_) EnterManaged(self_);
    return;
  }
  BecomeBlocked();
  // release (M7): safe to safe.
  self_.state_word().store(before_, std::memory_order_release);
}

bool HandshakeRound::ProxyThoseSafe() {
  bool ran_any = false;
  for (AwaitedHandshake* request = pending_; request != nullptr;
       request = request->next) {
    // Looked at after OrderAll().
    if (!MayProxy(*request)) continue;
    HandshakeQueue& queue = QueueOf(*request->target);
    if (request->target == &self_) {
      // Nobody can have the claim of a thread that is past the check.
      queue.RunOwn(self_, *request);
    } else if (queue.TryClaim(*request)) {
      queue.RunClaimed(*request->target, *request);
    } else {
      continue;
    }
    ran_any = true;
    // relaxed (M25): as in Poll, between two closures.
    if (self_.poll_word().load(std::memory_order_relaxed) != 0) {
      BecomeBlocked();
      if (!BecomeManaged()) break;
    }
  }
  return ran_any;
}

bool HandshakeRound::SpinsStill() {
  // With this thread on one processor, one of so many waits for it.
  if (announced_ || slept_ ||
      pending_count_ >= static_cast<size_t>(control_.processors)) {
    return false;
  }
  constexpr int kLooksPerClock = 16;
  AwaitedHandshake& first = *pending_;
  for (int i = 0; i < kLooksPerClock; ++i) {
    // relaxed (M61): DropSettled looks again.
    if (HandshakeRequest::IsSettled(
            first.outcome.load(std::memory_order_relaxed))) {
      return true;
    }
    CpuRelax();
  }
  const int64_t now = MonotonicNanos();
  if (spin_until_ == 0) spin_until_ = now + kSpinNanos;
  return now < spin_until_;
}

void HandshakeRound::Announce() {
  announced_ = true;
  // An event of before is not missed: the look comes after this.
  self_.record().wait.Take(WaitWord::kEvent);
  for (AwaitedHandshake* request = pending_; request != nullptr;
       request = request->next) {
    if (request->target == &self_) continue;
    QueueOf(*request->target).Listen(*request);
    if (!IsSafe(request->target->state())) Arm(*request->target, kPollWaited);
  }
  // Against *leaving* (M2), as the stopper does it: where it takes a membarrier
  // the first sleep does without, and ends soon. (Each of the two is as good
  // as OrderAll() against *entering*.)
  if (control_.fence.leave_fenced || slept_) {
    control_.OrderAllBeforeSleep();
    ordered_ = true;
    sleep_nanos_ = kLateCheckNanos;
  } else {
    sleep_nanos_ = kUnorderedNanos;
  }
}

void HandshakeRound::Sleep() {
  if (!watch_.has_value()) watch_.emplace(*watchdog_, "Handshake", name_);
  ThreadRecord& record = self_.record();
  record.waiting_for.Set(WaitingFor(WaitKind::kHandshake));
  const uint32_t bits = record.wait.Wait(
      WaitWord::kEvent,
      Deadline::AtMonotonicNanos(std::min(MonotonicNanos() + sleep_nanos_,
                                          deadline_.monotonic_nanos())));
  record.waiting_for.Set(WaitingFor());
  if (bits == 0 && slept_) LookForLate();
  slept_ = true;
  announced_ = false;
}

void HandshakeRound::LookForLate() {
  std::vector<Thread*> late;
  for (AwaitedHandshake* request = pending_; request != nullptr;
       request = request->next) {
    if (!IsSafe(request->target->state())) late.push_back(request->target);
  }
  watch_->Look(late);
}

void HandshakeRound::WithdrawRest() {
  BecomeBlocked();
  while (DropSettled(), pending_ != nullptr) {
    AwaitedHandshake& request = *pending_;
    if (request.target == &self_ ||
        QueueOf(*request.target).Withdraw(request)) {
      // relaxed (M61): the requester's own again.
      request.outcome.store(HandshakeRequest::kGone, std::memory_order_relaxed);
      continue;
    }
    // Another closure of that target is being run, or this one by itself.
    CpuRelax();
  }
}

}  // namespace stillpoint
