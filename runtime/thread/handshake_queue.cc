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
  if (owner_waits_) return WakeUp();  // it would be refused the claim
  HandshakeRequest* first = queued_.front();
  // Nobody waits for those without a waiter.
  while (first != nullptr && first->waiter == nullptr) {
    first = IntrusiveList<HandshakeRequest>::Next(*first);
  }
  // relaxed (M61): Listen, under the same lock, came before or looks again
  // afterwards.
  if (first == nullptr || first->outcome.load(std::memory_order_relaxed) !=
                              HandshakeRequest::kAwaited) {
    return WakeUp();
  }
  return first->waiter->SetQuietly(WaitWord::kEvent);
}

WakeUp HandshakeQueue::GiveClaimBack() {
  claimed_ = false;
  return owner_waits_ ? owner_.SetQuietly(WaitWord::kClaim) : WakeUp();
}

void HandshakeQueue::Settle(HandshakeRequest& request,
                            HandshakeRequest::Outcome outcome) {
  WaitWord* const waiter = request.waiter;
  if (waiter == nullptr) return;
  // release (M61): pairs with the requester's look. He may return at once and
  // take the request with him, so it is not touched afterwards. acq_rel in one
  // step against Listen: either that finds the outcome, or this finds that an
  // event is wanted.
  if (request.outcome.exchange(outcome, std::memory_order_acq_rel) ==
      HandshakeRequest::kAwaited) {
    waiter->Set(WaitWord::kEvent);
  }
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
  if (claimed_ || closed_ || owner_waits_ ||
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
    queued_.Remove(request);
    wake_ups.owner = GiveClaimBack();
    wake_ups.requester = EventForFirst();
  }
  Wake(wake_ups);
  // relaxed (M61): the caller is the requester, or nobody waits.
  request.outcome.store(HandshakeRequest::kDone, std::memory_order_relaxed);
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
  HandshakeRequest::Outcome expected = HandshakeRequest::kPending;
  // relaxed (M61): see Settle; who is told looks again, by acquire.
  request.outcome.compare_exchange_strong(expected, HandshakeRequest::kAwaited,
                                          std::memory_order_relaxed,
                                          std::memory_order_relaxed);
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
    // By the time that the owner waits the claim may be free, and taken again:
    // it has its turn from here on.
    owner_waits_ = claimed_;
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
    {
      RankedMutexLock lock(lock_);
      queued_.Remove(*done);
      request = --left == 0 ? nullptr : queued_.front();
      if (request == nullptr) claimed_ = false;
    }
    if (settled != nullptr) {
      TellSettled(*done, HandshakeResult::kDone);
    } else {
      Settle(*done, HandshakeRequest::kDone);
    }
  }
  return true;
}

void HandshakeQueue::TakeTurn() {
  RankedMutexLock lock(lock_);
  owner_waits_ = true;
}

void HandshakeQueue::AwaitClaim() {
  while (true) {
    {
      RankedMutexLock lock(lock_);
      if (!claimed_) return;
      owner_waits_ = true;
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
    if (!claimed_ && queued_.empty()) return;  // as a rule
  }
  AwaitClaim();
  while (true) {
    HandshakeRequest* gone;
    {
      RankedMutexLock lock(lock_);
      gone = queued_.PopFront();
    }
    if (gone == nullptr) return;
    if (gone->settled != nullptr) {
      TellSettled(*gone, HandshakeResult::kGone);
    } else {
      Settle(*gone, HandshakeRequest::kGone);
    }
  }
}

// Nobody else can look: of the slot's last thread nobody has a pin any more,
// and the next one is not published.
void HandshakeQueue::Open() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  closed_ = false;
  owner_waits_ = false;
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
