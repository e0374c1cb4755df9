// The queue between requesters and the VM thread.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_OPERATION_QUEUE_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_OPERATION_QUEUE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "runtime/base/clock.h"
#include "runtime/base/intrusive_list.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/safepoint/vm_operation.h"
#include "runtime/thread/wait_word.h"

namespace stillpoint {

enum class OperationResult : uint32_t {
  kPending,
  kDone,
  kAbandoned,  // the runtime ended before the world could be stopped
};

// A requested operation.
//
// One that is waited for lives on the requester's stack, and so no longer than
// until `result` is written; the wake-up that comes after goes to `waiter`,
// which lives in the requester's pinned Thread, or is shared. One that nobody
// waits for has no waiter; it owns its operation, and deletes itself.
struct OperationRequest : IntrusiveNode<OperationRequest> {
  VmOperation* operation = nullptr;
  std::unique_ptr<VmOperation> owned;
  int64_t requested_at = 0;
  WaitWord* waiter = nullptr;
  std::shared_ptr<WaitWord> shared_waiter;  // of an unattached requester
  std::atomic<OperationResult> result{OperationResult::kPending};

  // Requests that coalesced with this one and end with it.
  IntrusiveList<OperationRequest> followers;

  // VM thread: writes the result and wakes the requester, and those of the
  // followers. *this is gone then.
  void Complete(OperationResult outcome);

  // Requester, in a safe state: waits for the result.
  OperationResult Await();
};

using OperationList = IntrusiveList<OperationRequest>;

// FIFO, any number of requesters, one VM thread.
class OperationQueue {
 public:
  // False once requests are refused. Safe states only.
  bool Push(OperationRequest& request);

  // The same from Managed, without waiting: empty if the lock was contended.
  std::optional<bool> TryPush(OperationRequest& request);

  // Whether a request would be the first in the queue, and not be refused. A
  // glance: an answer for who holds Stopper_lock and is content with that
  // order.
  bool IdleAndOpen();

  enum class Work { kQueued, kTimedOut, kClosed };

  // VM thread: waits while the queue is empty, until `deadline`; kClosed when
  // it is empty and closed.
  Work AwaitWork(Deadline deadline);

  // Who holds Stopper_lock: moves the longest prefix that shares a stop into
  // `batch` (which is empty): operations that need a safepoint, or one that
  // needs none. Empty if there is none.
  void TakeBatch(OperationList& batch);

  // VM thread: sleeps until `deadline`, or until the queue is closed.
  void SleepUntil(Deadline deadline);

  // Around a fork: nobody is in the middle of a request then.
  void LockForFork() ABSL_EXCLUSIVE_LOCK_FUNCTION(lock_) { lock_.Lock(); }
  void UnlockAfterFork() ABSL_UNLOCK_FUNCTION(lock_) { lock_.Unlock(); }
  // The same in the child: refuses every request from now on.
  void UnlockInForkedChild() ABSL_UNLOCK_FUNCTION(lock_) {
    refusing_ = true;
    lock_.Unlock();
  }

  // No more requests; those queued already are still taken. Idempotent.
  void RefuseRequests();
  // The VM thread is to end when the queue is empty. Idempotent.
  void Close();
  // acquire (M17): pairs with Close.
  bool closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  bool PushLocked(OperationRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void WakeVmThread();

  RankedMutex lock_{kOperationQueueLockRank};
  OperationList queued_ ABSL_GUARDED_BY(lock_);
  bool refusing_ ABSL_GUARDED_BY(lock_) = false;
  std::atomic<bool> closed_{false};

  // Futex of the VM thread: changes with every push and with Close.
  std::atomic<uint32_t> signal_{0};
  std::atomic<bool> vm_thread_sleeps_{false};
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_OPERATION_QUEUE_H_
