#include "runtime/thread/handshake_queue.h"

#include <atomic>
#include <cstddef>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/tls_block.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/wait_word.h"

namespace stillpoint {
namespace {

// The calling thread is inside a closure: it may neither poll nor wait, and
// what would is refused by this name.
class InsideHandshake {
 public:
  explicit InsideHandshake(const HandshakeRequest& request)
      : name_(request.name) {
    ++tls_block.no_safepoint_depth;
    tls_block.handshake = &name_;
  }
  ~InsideHandshake() {
    tls_block.handshake = nullptr;
    --tls_block.no_safepoint_depth;
  }
  InsideHandshake(const InsideHandshake&) = delete;
  InsideHandshake& operator=(const InsideHandshake&) = delete;

 private:
  const std::string_view name_;
};

// noexcept: an exception would leave the claim taken, and on the owner's side
// come out of a poll that has nothing to do with it.
void RunClosure(Thread& owner, const HandshakeRequest& request) noexcept {
  InsideHandshake inside(request);
  (*request.closure)(owner);
}

void TellSettled(HandshakeRequest& request, HandshakeResult result) noexcept {
  InsideHandshake inside(request);
  request.settled(request, result);
}

}  // namespace

void HandshakeQueue::Wake(const WakeUps& wake_ups) {
  wake_ups.owner.Wake();
  wake_ups.requester.Wake();
}

WakeUp HandshakeQueue::EventForFirst() {
  HandshakeRequest* first = queued_.front();
  // Nobody waits for those without a waiter.
  while (first != nullptr && first->waiter == nullptr) {
    first = IntrusiveList<HandshakeRequest>::Next(*first);
  }
  if (first == nullptr || !first->listening) return WakeUp();
  return first->waiter->SetQuietly(WaitWord::kEvent);
}

WakeUp HandshakeQueue::GiveClaimBack() {
  claimed_ = false;
  return owner_waits_ ? owner_.SetQuietly(WaitWord::kClaim) : WakeUp();
}

void HandshakeQueue::Settle(HandshakeRequest& request,
                            HandshakeRequest::Outcome outcome,
                            WakeUps& wake_ups) {
  queued_.Remove(request);
  WaitWord* const waiter = request.waiter;
  if (waiter == nullptr) return;
  const bool listening = request.listening;
  // release (M61): pairs with the requester's look. He may return at once and
  // take the request with him, so it is not touched afterwards.
  request.outcome.store(outcome, std::memory_order_release);
  if (listening) wake_ups.requester = waiter->SetQuietly(WaitWord::kEvent);
}

bool HandshakeQueue::Push(HandshakeRequest& request) {
  RankedMutexLock lock(lock_);
  if (closed_) return false;
  queued_.PushBack(request);
  return true;
}

void HandshakeQueue::TellGone(HandshakeRequest& request) {
  TellSettled(request, HandshakeResult::kGone);
}

bool HandshakeQueue::TryClaim(HandshakeRequest& request) {
  RankedMutexLock lock(lock_);
  if (claimed_ || closed_ ||
      !IntrusiveList<HandshakeRequest>::IsLinked(request)) {
    return false;
  }
  claimed_ = true;
  return true;
}

void HandshakeQueue::RunClaimed(Thread& owner, HandshakeRequest& request) {
  RunClosure(owner, request);
  void (*const settled)(HandshakeRequest&, HandshakeResult) = request.settled;
  WakeUps wake_ups;
  {
    RankedMutexLock lock(lock_);
    // The caller is the requester, or nobody waits.
    request.listening = false;
    Settle(request, HandshakeRequest::kDone, wake_ups);
    wake_ups.owner = GiveClaimBack();
    wake_ups.requester = EventForFirst();
  }
  Wake(wake_ups);
  if (settled != nullptr) TellSettled(request, HandshakeResult::kDone);
}

bool HandshakeQueue::RunStopped(Thread& owner, HandshakeRequest& request) {
  {
    RankedMutexLock lock(lock_);
    if (closed_) return false;
    STILLPOINT_CHECK(!claimed_,
                     "the closure of a handshake is being run while "
                     "the world is stopped");
    // The owner may be about to leave: it waits for the end of the closure.
    claimed_ = true;
  }
  RunClosure(owner, request);
  WakeUps wake_ups;
  {
    RankedMutexLock lock(lock_);
    wake_ups.owner = GiveClaimBack();
    wake_ups.requester = EventForFirst();
  }
  Wake(wake_ups);
  return true;
}

void HandshakeQueue::RunOwn(Thread& owner, HandshakeRequest& request) {
  RunClosure(owner, request);
  // relaxed (M61): the requester's own.
  request.outcome.store(HandshakeRequest::kDone, std::memory_order_relaxed);
}

void HandshakeQueue::Listen(HandshakeRequest& request) {
  RankedMutexLock lock(lock_);
  request.listening = true;
}

bool HandshakeQueue::Withdraw(HandshakeRequest& request) {
  WakeUps wake_ups;
  {
    RankedMutexLock lock(lock_);
    if (claimed_ || !IntrusiveList<HandshakeRequest>::IsLinked(request)) {
      return false;
    }
    queued_.Remove(request);
    wake_ups.requester = EventForFirst();
  }
  Wake(wake_ups);
  return true;
}

bool HandshakeQueue::RunAll(Thread& owner) {
  HandshakeRequest* request;
  size_t left;
  {
    RankedMutexLock lock(lock_);
    if (claimed_) return false;
    request = queued_.front();
    if (request == nullptr) return true;
    claimed_ = true;
    // No more than are there now: who comes later arms the poll word after the
    // owner has entered Managed, and is served at its next poll. Else a storm
    // of requests could keep it here, and a stop waiting.
    left = queued_.size();
  }
  while (request != nullptr) {
    RunClosure(owner, *request);
    HandshakeRequest* const done = request;
    void (*const settled)(HandshakeRequest&, HandshakeResult) = done->settled;
    WakeUps wake_ups;
    {
      RankedMutexLock lock(lock_);
      Settle(*done, HandshakeRequest::kDone, wake_ups);
      request = --left == 0 ? nullptr : queued_.front();
      if (request == nullptr) claimed_ = false;
    }
    Wake(wake_ups);
    if (settled != nullptr) TellSettled(*done, HandshakeResult::kDone);
  }
  return true;
}

void HandshakeQueue::AwaitClaim() {
  while (true) {
    {
      RankedMutexLock lock(lock_);
      owner_waits_ = claimed_;
      if (!claimed_) return;
    }
    // Its holder neither polls nor waits.
    owner_.Wait(WaitWord::kClaim, Deadline::Infinite());
    owner_.Take(WaitWord::kClaim);
  }
}

void HandshakeQueue::TellFirst() {
  WakeUp owed;
  {
    RankedMutexLock lock(lock_);
    owed = EventForFirst();
  }
  owed.Wake();
}

void HandshakeQueue::Close() {
  {
    RankedMutexLock lock(lock_);
    closed_ = true;
  }
  AwaitClaim();
  while (true) {
    WakeUps wake_ups;
    HandshakeRequest* gone;
    void (*settled)(HandshakeRequest&, HandshakeResult);
    {
      RankedMutexLock lock(lock_);
      gone = queued_.front();
      if (gone == nullptr) return;
      settled = gone->settled;
      Settle(*gone, HandshakeRequest::kGone, wake_ups);
    }
    Wake(wake_ups);
    if (settled != nullptr) TellSettled(*gone, HandshakeResult::kGone);
  }
}

void HandshakeQueue::Open() {
  RankedMutexLock lock(lock_);
  closed_ = false;
}

void HandshakeQueue::ResetInForkedChild() {
  lock_.ResetInForkedChild();
  claimed_ = false;
  closed_ = true;
  owner_waits_ = false;
  while (queued_.PopFront() != nullptr) {
  }
}

}  // namespace stillpoint
