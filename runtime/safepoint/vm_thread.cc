#include "runtime/safepoint/vm_thread.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/absl_string.h"
#include "runtime/base/clock.h"
#include "runtime/base/event_sink.h"
#include "runtime/base/tls_block.h"
#include "runtime/lock/held_locks.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"
#include "runtime/safepoint/operation_queue.h"
#include "runtime/safepoint/vm_operation.h"
#include "runtime/safepoint/world.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/wait_check.h"
#include "runtime/thread/wait_word.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {
namespace {

absl::Status RefusedError(const VmOperation& operation) {
  return absl::FailedPreconditionError(
      absl::StrCat("VM operation ", ToAbsl(operation.name()),
                   " was requested after the runtime's shutdown had begun"));
}

}  // namespace

VmThread::VmThread(std::shared_ptr<Registry> registry,
                   std::shared_ptr<const Watchdog> watchdog,
                   VmThreadOptions options)
    : registry_(std::move(registry)),
      watchdog_(std::move(watchdog)),
      options_(std::move(options)),
      protocol_(*registry_, *watchdog_, abandon_) {}

absl::StatusOr<std::shared_ptr<VmThread>> VmThread::Start(
    std::shared_ptr<Registry> registry,
    std::shared_ptr<const Watchdog> watchdog, VmThreadOptions options) {
  std::shared_ptr<VmThread> vm_thread(new VmThread(
      std::move(registry), std::move(watchdog), std::move(options)));
  // The OS thread's own share: it may outlast a Stop that gave up on it.
  auto share = std::make_unique<std::shared_ptr<VmThread>>(vm_thread);
  OsThreadOptions os_options;
  os_options.block_signals = true;
  absl::Status started = StartOsThread(os_options, &ThreadMain, share.get());
  if (!started.ok()) return started;
  share.release();
  return vm_thread;
}

void* VmThread::ThreadMain(void* argument) {
  std::unique_ptr<std::shared_ptr<VmThread>> share(
      static_cast<std::shared_ptr<VmThread>*>(argument));
  SetCurrentOsThreadName((*share)->options_.name);
  (*share)->registry_->ApplyTimerSlack(std::nullopt);
  (*share)->Run();
  return nullptr;
}

void VmThread::Run() {
  tls_block.vm_thread_of = this;
  OperationList batch;
  while (true) {
    const OperationQueue::Work work = queue_.AwaitWork(NextPeriodicStop());
    if (work == OperationQueue::Work::kClosed) break;
    // Slept here and not with the lock held: a requester of an operation that
    // needs no safepoint may come in between.
    if (work == OperationQueue::Work::kQueued) {
      queue_.SleepUntil(Deadline::AtMonotonicNanos(EarliestStop()));
    }
    RankedMutexLock stopper(stopper_lock_);
    // A requester may have stopped the world while this waited for the lock,
    // also if it came for a periodic stop, which is not due any more then.
    if (!queue_.closed() && MonotonicNanos() < EarliestStop()) {
      continue;
    }
    queue_.TakeBatch(batch);
    if (!batch.empty()) RunBatch(batch);
    // Looked at after every batch: operations that need no safepoint may keep
    // the queue from ever being empty.
    if (NextPeriodicStop().passed()) RunStop(batch);
  }
  {
    RankedMutexLock stopper(stopper_lock_);
    protocol_.CloseForEver();
  }
  tls_block.vm_thread_of = nullptr;
  // release (M23): pairs with AwaitExit.
  exited_.store(1, std::memory_order_release);
  FutexWake(exited_, INT32_MAX);
}

Deadline VmThread::NextPeriodicStop() const {
  if (options_.interval_nanos == 0) return Deadline::Infinite();
  // relaxed (M28), here and below: a time; an old one costs a look too early.
  return Deadline::AtMonotonicNanos(
      last_stop_end_.load(std::memory_order_relaxed) + options_.interval_nanos);
}

int64_t VmThread::EarliestStop() const {
  // relaxed (M28): as above.
  return last_stop_end_.load(std::memory_order_relaxed) +
         options_.min_mutator_nanos;
}

void VmThread::RunBatch(OperationList& batch) noexcept {
  if (batch.front()->operation->needs_safepoint()) {
    RunStop(batch);
    return;
  }
  World running;
  RunOperation(*batch.front()->operation, running);
  batch.PopFront()->Complete(OperationResult::kDone);
}

void VmThread::RunStop(OperationList& batch) {
  SafepointRecord record;
  OperationRequest* const first = batch.front();
  const std::string_view name =
      first == nullptr ? "periodic" : first->operation->name();
  std::memcpy(record.operation, name.data(),
              std::min(name.size(), sizeof(record.operation) - 1));
  record.operations = static_cast<uint32_t>(batch.size());
  const int64_t requested_at = first == nullptr ? 0 : first->requested_at;

  nested_ = 0;
  const bool stopped = protocol_.Begin(record);
  if (stopped) {
    for (OperationRequest* request = first; request != nullptr;
         request = OperationList::Next(*request)) {
      RunOperation(*request->operation, protocol_.world());
    }
    protocol_.End(record);
  }
  // relaxed (M28): a time.
  last_stop_end_.store(MonotonicNanos(), std::memory_order_relaxed);
  // Only now: nobody's wake-up is paid for by the stopped world.
  while (OperationRequest* request = batch.PopFront()) {
    request->Complete(stopped ? OperationResult::kDone
                              : OperationResult::kAbandoned);
  }
  if (!stopped) return;
  record.queue_wait = requested_at == 0 ? 0 : record.begin - requested_at;
  record.nested_operations = nested_;
  history_.Note(record, protocol_.late());
  if (options_.sink != nullptr) options_.sink->OnSafepoint(record);
}

void VmThread::RunOperation(VmOperation& operation, World& world) noexcept {
  running_ = &operation;
  running_world_ = &world;
  // relaxed (M28): read only for a message.
  in_operation_.store(true, std::memory_order_relaxed);
  operation.Run(world);
  in_operation_.store(false, std::memory_order_relaxed);
  running_ = nullptr;
}

// ExecuteNested needs the lock, which this thread holds if it is the stopper.
absl::Status VmThread::Execute(VmOperation& operation)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (tls_block.vm_thread_of == this) return ExecuteNested(operation);
  if (absl::Status allowed = CheckMayWait("requesting a VM operation");
      !allowed.ok()) {
    return allowed;
  }
  // A member may still be in here when a Runtime that could not wait for it is
  // destroyed.
  const std::shared_ptr<VmThread> keep_alive = shared_from_this();
  Thread* current = Thread::Current();
  // This frame's own share: Complete takes the request's, and lets go of it
  // while the requester may still be looking at the word.
  std::shared_ptr<WaitWord> own_word;
  OperationRequest request;
  request.operation = &operation;
  request.requested_at = MonotonicNanos();
  if (current != nullptr &&
      current->record().keep_alive.get() == registry_.get()) {
    // Lives at least as long as this VM thread, which holds the registry.
    request.waiter = &current->record().wait;
  } else {
    own_word = std::make_shared<WaitWord>();
    request.shared_waiter = own_word;
    request.waiter = own_word.get();
  }
  OperationResult result;
  {
    const WaitScope waiting(current, WaitingFor(WaitKind::kOperation));
    if (!TryRunHere(request) && !queue_.Push(request)) {
      return RefusedError(operation);
    }
    result = request.Await();
  }
  if (result == OperationResult::kDone) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "VM operation ", ToAbsl(operation.name()),
      " did not run: the runtime was shut down while it waited for a thread "
      "that does not reach a safepoint"));
}

bool VmThread::TryRunHere(OperationRequest& request) {
  // Not on the stack of a green thread, which is small.
  if (!options_.requester_may_run || tls_block.blocker != nullptr ||
      !stopper_lock_.TryLock()) {
    return false;
  }
  // In turn: not in front of what is queued already, and not too soon after the
  // last stop.
  const bool may_run =
      queue_.IdleAndOpen() && MonotonicNanos() >= EarliestStop();
  if (may_run) {
    tls_block.vm_thread_of = this;
    OperationList batch;
    batch.PushBack(request);
    RunBatch(batch);
    tls_block.vm_thread_of = nullptr;
  }
  stopper_lock_.Unlock();
  return may_run;
}

absl::Status VmThread::ExecuteAsync(std::unique_ptr<VmOperation> operation)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (operation == nullptr) {
    return absl::InvalidArgumentError("ExecuteAsync needs an operation");
  }
  if (tls_block.vm_thread_of == this) {
    // From inside an operation it is fine: it runs in a later stop.
    if (absl::Status allowed = CheckInOperation(*operation); !allowed.ok()) {
      return allowed;
    }
  } else if (absl::Status allowed = CheckMayWait("requesting a VM operation");
             !allowed.ok()) {
    return allowed;
  }
  const std::shared_ptr<VmThread> keep_alive = shared_from_this();
  auto request = std::make_unique<OperationRequest>();
  request->operation = operation.get();
  request->owned = std::move(operation);
  request->requested_at = MonotonicNanos();
  Thread* current = Thread::Current();
  std::optional<bool> pushed = queue_.TryPush(*request);
  if (!pushed.has_value()) {
    const WaitScope waiting(current, WaitingFor(WaitKind::kOperation));
    pushed = queue_.Push(*request);
  }
  if (!*pushed) return RefusedError(*request->operation);
  request.release();  // the queue's now
  return absl::OkStatus();
}

// Only the thread that is asked about writes what is read here.
absl::StatusOr<bool> VmThread::InStoppedWorld(std::string_view name) const
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (tls_block.vm_thread_of != this) return false;
  const std::string what = absl::StrCat("requesting handshake ", ToAbsl(name));
  if (absl::Status outside = CheckNotInHandshake(what); !outside.ok()) {
    return outside;
  }
  if (running_ == nullptr || !running_world_->stopped()) {
    return absl::FailedPreconditionError(absl::StrCat(
        what, " from ",
        running_ == nullptr ? "an event sink or the destructor of an operation"
                            : "an operation that runs without a safepoint",
        ": only one that runs at a safepoint may do that"));
  }
  const RankedLock* held = InnermostHeldLock();
  if (held != nullptr && held->rank() > kThreadsLockRank.rank) {
    return absl::FailedPreconditionError(absl::StrCat(
        what, " while holding ", ToAbsl(held->name()), ": release it first"));
  }
  return true;
}

absl::Status VmThread::CheckInOperation(const VmOperation& operation) const {
  if (absl::Status outside = CheckNotInHandshake("requesting a VM operation");
      !outside.ok()) {
    return outside;
  }
  if (running_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "VM operation ", ToAbsl(operation.name()),
        " was requested from an event sink or from the destructor of an "
        "operation: these may not call the runtime"));
  }
  const RankedLock* held = InnermostHeldLock();
  if (held != nullptr && held->rank() > kThreadsLockRank.rank) {
    return absl::FailedPreconditionError(absl::StrCat(
        "VM operation ", ToAbsl(operation.name()), " was requested while ",
        ToAbsl(held->name()), " is held: release it first"));
  }
  return absl::OkStatus();
}

absl::Status VmThread::ExecuteNested(VmOperation& operation) {
  if (absl::Status allowed = CheckInOperation(operation); !allowed.ok()) {
    return allowed;
  }
  if (!running_->allows_nested()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "VM operation ", ToAbsl(operation.name()), " was requested inside ",
        ToAbsl(running_->name()),
        ", which does not allow it: override allows_nested() there, or "
        "request it after the stop"));
  }
  // The outer one's: that of the last stop still lists the threads it had.
  World& world = *running_world_;
  if (operation.needs_safepoint() && !world.stopped()) {
    return absl::FailedPreconditionError(
        absl::StrCat("VM operation ", ToAbsl(operation.name()),
                     " needs a safepoint, but was requested inside ",
                     ToAbsl(running_->name()), ", which runs without one"));
  }
  VmOperation* const outer = running_;
  ++nested_;
  RunOperation(operation, world);
  running_ = outer;
  // relaxed (M28): as in RunOperation.
  in_operation_.store(true, std::memory_order_relaxed);
  return absl::OkStatus();
}

bool VmThread::Stop(Deadline deadline) {
  // After the deadline a stop that waits for a thread gives up at its next
  // look; leave it time for that.
  constexpr int64_t kAbandonNanos = 1'000'000'000;
  queue_.Close();
  if (AwaitExit(deadline)) return true;
  // release (M22): pairs with the acquire in StopProtocol.
  abandon_.store(true, std::memory_order_release);
  return AwaitExit(
      Deadline::AtMonotonicNanos(MonotonicNanos() + kAbandonNanos));
}

bool VmThread::AwaitExit(Deadline deadline) {
  // acquire (M23): pairs with the release in Run.
  while (exited_.load(std::memory_order_acquire) == 0) {
    if (FutexWait(exited_, 0u, deadline) == FutexResult::kTimedOut) {
      return exited_.load(std::memory_order_acquire) != 0;
    }
  }
  return true;
}

std::string VmThread::DescribeBusy() const {
  // relaxed (M28): for a message.
  return in_operation_.load(std::memory_order_relaxed)
             ? "the VM thread still runs an operation"
             : "the VM thread is still busy";
}

}  // namespace stillpoint
