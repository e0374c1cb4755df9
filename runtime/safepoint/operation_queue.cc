#include "runtime/safepoint/operation_queue.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/os/futex.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/wait_word.h"

namespace stillpoint {

void OperationRequest::Complete(OperationResult outcome) {
  while (OperationRequest* follower = followers.PopFront()) {
    follower->Complete(outcome);
  }
  if (waiter == nullptr) {
    delete this;
    return;
  }
  WaitWord* const word = waiter;
  const std::shared_ptr<WaitWord> keep_alive = std::move(shared_waiter);
  // release (M16): pairs with Await. The requester may return at once and take
  // this request with it, so nothing of *this is touched afterwards.
  result.store(outcome, std::memory_order_release);
  word->Set(WaitWord::kEvent);
}

OperationResult OperationRequest::Await() {
  while (true) {
    // acquire (M16): what the operation wrote is seen by the requester.
    const OperationResult now = result.load(std::memory_order_acquire);
    if (now != OperationResult::kPending) return now;
    waiter->Wait(WaitWord::kEvent, Deadline::Infinite());
    waiter->Take(WaitWord::kEvent);
  }
}

bool OperationQueue::Push(OperationRequest& request) {
  {
    RankedMutexLock lock(lock_);
    if (!PushLocked(request)) return false;
  }
  WakeVmThread();
  return true;
}

std::optional<bool> OperationQueue::TryPush(OperationRequest& request) {
  // Held while Managed, so nothing may stop in between.
  const NoSafepointScope short_region;
  if (!lock_.TryLock()) return std::nullopt;
  const bool pushed = PushLocked(request);
  lock_.Unlock();
  if (pushed) WakeVmThread();
  return pushed;
}

bool OperationQueue::PushLocked(OperationRequest& request) {
  if (refusing_) return false;
  for (OperationRequest* queued = queued_.front(); queued != nullptr;
       queued = OperationList::Next(*queued)) {
    if (request.operation->CoalescesWith(*queued->operation)) {
      queued->followers.PushBack(request);
      return true;
    }
  }
  queued_.PushBack(request);
  return true;
}

void OperationQueue::WakeVmThread() {
  // seq_cst (M5) against AwaitWork: see there.
  signal_.fetch_add(1);
  if (vm_thread_sleeps_.load()) FutexWake(signal_, 1);
}

bool OperationQueue::IdleAndOpen() {
  RankedMutexLock lock(lock_);
  return queued_.empty() && !refusing_;
}

OperationQueue::Work OperationQueue::AwaitWork(Deadline deadline) {
  while (true) {
    // acquire (M5, M17): a signal seen here comes with what it announces; the
    // futex compares with this value, so a later one is not slept through.
    const uint32_t signal = signal_.load(std::memory_order_acquire);
    {
      RankedMutexLock lock(lock_);
      if (!queued_.empty()) return Work::kQueued;
      // acquire (M17): pairs with Close, which comes after RefuseRequests, so
      // that empty and closed is for good.
      if (closed_.load(std::memory_order_acquire)) return Work::kClosed;
    }
    if (deadline.passed()) return Work::kTimedOut;
    // seq_cst (M5) against Push: either it sees the sleeper, or the kernel
    // sees the changed word.
    vm_thread_sleeps_.store(true);
    FutexWait(signal_, signal, deadline);
    vm_thread_sleeps_.store(false);
  }
}

void OperationQueue::TakeBatch(OperationList& batch) {
  RankedMutexLock lock(lock_);
  while (OperationRequest* next = queued_.front()) {
    const bool shares = next->operation->needs_safepoint();
    if (!batch.empty() && !shares) return;
    queued_.Remove(*next);
    batch.PushBack(*next);
    if (!shares) return;
  }
}

void OperationQueue::SleepUntil(Deadline deadline) {
  // Pushes change the word without a wake-up, since vm_thread_sleeps_ is not
  // set: they have to wait for the deadline in any case.
  while (!deadline.passed()) {
    // acquire (M17), in this order: who sees Close's signal sees `closed_`.
    const uint32_t signal = signal_.load(std::memory_order_acquire);
    if (closed_.load(std::memory_order_acquire)) return;
    FutexWait(signal_, signal, deadline);
  }
}

void OperationQueue::RefuseRequests() {
  RankedMutexLock lock(lock_);
  refusing_ = true;
}

void OperationQueue::Close() {
  RefuseRequests();
  // release (M17): pairs with the acquire loads of the VM thread.
  closed_.store(true, std::memory_order_release);
  signal_.fetch_add(1);
  FutexWake(signal_, 1);
}

}  // namespace stillpoint
