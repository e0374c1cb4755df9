// fork(2) with the world stopped: the VM thread's part.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/base/event_sink.h"
#include "runtime/base/tls_block.h"
#include "runtime/lock/held_locks.h"
#include "runtime/safepoint/vm_thread.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/threads_lock.h"
#include "runtime/thread/timer_slack.h"
#include "runtime/thread/wait_check.h"

namespace stillpoint {

absl::Status VmThread::ForkPrepare() {
  if (tls_block.blocker != nullptr) {
    return absl::FailedPreconditionError(
        "ForkPrepare on a green thread, whose carrier would not exist in the "
        "child: call it on a native thread");
  }
  // As in Execute: the Runtime may be destroyed while this waits.
  const std::shared_ptr<VmThread> keep_alive = shared_from_this();
  if (absl::Status allowed = CheckMayWait("ForkPrepare"); !allowed.ok()) {
    return allowed;
  }
  if (!CurrentThreadIsSafe()) {
    return absl::FailedPreconditionError(
        "ForkPrepare in Managed: the world cannot stop while this thread is in "
        "it; open a NativeScope around the fork");
  }
  // In the order of their ranks. The stop comes in the middle, as Threads_lock
  // does; a starter that holds ThreadStart_lock waits for the latter, so it has
  // to be kept out before.
  registry_->threads_lock().LockStartsForFork();
  stopper_lock_.Lock();
  // The stop that ends a runtime is on for good. One more would make the stop
  // word even, and let in the threads that it has to keep out.
  if (registry_->control().closed.load()) {
    stopper_lock_.Unlock();
    registry_->threads_lock().UnlockStartsAfterFork();
    return absl::FailedPreconditionError(
        "ForkPrepare after the runtime has ended: nobody is inside it any "
        "more, so a plain fork will do");
  }
  fork_record_ = SafepointRecord();
  constexpr std::string_view kName = "fork";
  std::memcpy(fork_record_.operation, kName.data(), kName.size());
  if (!protocol_.Begin(fork_record_)) {
    stopper_lock_.Unlock();
    registry_->threads_lock().UnlockStartsAfterFork();
    return absl::UnavailableError(
        "ForkPrepare: the runtime was shut down while a thread kept the world "
        "from stopping");
  }
  queue_.LockForFork();
  return absl::OkStatus();
}

void VmThread::ForkParent() {
  STILLPOINT_CHECK(!registry_->InForkedChild(),
                   "ForkParent is called in the child: call ForkChild there");
  queue_.UnlockAfterFork();
  protocol_.End(fork_record_);
  // relaxed (M28): a time.
  last_stop_end_.store(MonotonicNanos(), std::memory_order_relaxed);
  const SafepointRecord record = fork_record_;
  stopper_lock_.Unlock();
  registry_->threads_lock().UnlockStartsAfterFork();
  if (options_.sink != nullptr) options_.sink->OnSafepoint(record);
}

void VmThread::ForkChild() {
  STILLPOINT_CHECK(registry_->InForkedChild(),
                   "ForkChild is called in the parent: call ForkParent there");
  // Whatever the calling thread was in the parent, it is no member here.
  RestoreTimerSlack();
  if (Thread* current = Thread::Current(); current != nullptr) {
    ThreadRecord& record = current->record();
    tls_block.lost_attaches += record.attach_depth;
    record.attach_depth = 0;
    record.leaving = false;
  }
  tls_block.current = nullptr;
  tls_block.state = nullptr;
  tls_block.blocker = nullptr;
  // The stop word stays odd: nobody enters Managed in a runtime that has no
  // threads any more.
  registry_->BecomeForkedChild();
  // relaxed (M30): there is no other thread.
  exited_.store(1, std::memory_order_relaxed);
  history_.ResetInForkedChild();
  queue_.UnlockInForkedChild();
  registry_->threads_lock().UnlockAfterStop();
  stopper_lock_.Unlock();
  registry_->threads_lock().UnlockStartsAfterFork();
}

}  // namespace stillpoint
