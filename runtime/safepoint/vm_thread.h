// The VM thread: takes VM operations off the queue, stops the world for them,
// runs them, lets it go.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_VM_THREAD_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_VM_THREAD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/base/event_sink.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/safepoint/operation_queue.h"
#include "runtime/safepoint/stop_history.h"
#include "runtime/safepoint/stop_protocol.h"
#include "runtime/safepoint/vm_operation.h"
#include "runtime/safepoint/watchdog.h"
#include "runtime/thread/registry.h"

namespace stillpoint {

struct VmThreadOptions {
  std::string name;
  int64_t min_mutator_nanos = 0;  // between the end of a stop and the next
  int64_t interval_nanos = 0;     // a stop at least this often; 0: never
  bool requester_may_run = true;  // see Options::requester_may_run
  EventSink* sink = nullptr;
};

class VmThread : public std::enable_shared_from_this<VmThread> {
 public:
  // Creates the OS thread. Error: ResourceExhausted.
  static absl::StatusOr<std::shared_ptr<VmThread>> Start(
      std::shared_ptr<Registry> registry,
      std::shared_ptr<const Watchdog> watchdog, VmThreadOptions options);

  // The worst stops so far; see Runtime::WorstStops.
  std::vector<WorstStop> WorstStops() const { return history_.Worst(); }

  // See Runtime::Execute.
  absl::Status Execute(VmOperation& operation);

  // See Runtime::ExecuteAsync.
  absl::Status ExecuteAsync(std::unique_ptr<VmOperation> operation);

  // Whether the calling thread runs an operation of this runtime in a stop.
  // FailedPrecondition if it runs one in which handshake `name` is not
  // possible.
  absl::StatusOr<bool> InStoppedWorld(std::string_view name) const;

  // From now on requests are refused.
  void RefuseRequests() { queue_.RefuseRequests(); }

  // Runs what is queued, closes the world for ever, ends. False if the VM
  // thread is still busy at the deadline: a stop that waits for a thread is
  // abandoned then, an operation that does not end is not. Safe states only.
  bool Stop(Deadline deadline);

  // See Runtime::ForkPrepare (vm_thread_fork.cc). The calling thread is the
  // stopper, and holds every lock, from a successful ForkPrepare until one of
  // the others.
  absl::Status ForkPrepare() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void ForkParent() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void ForkChild() ABSL_NO_THREAD_SAFETY_ANALYSIS;

  // Why Stop was false, for the status that says so.
  std::string DescribeBusy() const;

 private:
  VmThread(std::shared_ptr<Registry> registry,
           std::shared_ptr<const Watchdog> watchdog, VmThreadOptions options);

  static void* ThreadMain(void* argument);
  void Run();
  Deadline NextPeriodicStop() const;
  // When the next stop may begin at the earliest.
  int64_t EarliestStop() const;
  // Ends the process if an operation, its destructor or the event sink throws,
  // or memory for the list of threads runs out: on a requester's thread the
  // exception would reach its handlers, and leave the world stopped.
  void RunBatch(OperationList& batch) noexcept
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stopper_lock_);
  // Stops the world for the operations in `batch`; none for a periodic stop.
  void RunStop(OperationList& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stopper_lock_);
  // The same for a nested one, whose exception could be caught in the outer.
  void RunOperation(VmOperation& operation, World& world) noexcept
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stopper_lock_);
  bool TryRunHere(OperationRequest& request);
  absl::Status CheckInOperation(const VmOperation& operation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stopper_lock_);
  absl::Status ExecuteNested(VmOperation& operation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stopper_lock_);
  bool AwaitExit(Deadline deadline);

  const std::shared_ptr<Registry> registry_;
  const std::shared_ptr<const Watchdog> watchdog_;
  const VmThreadOptions options_;
  std::atomic<bool> abandon_{false};
  OperationQueue queue_;

  // Who holds it is the stopper. In all that is said of "the VM thread" during
  // a stop, a requester that runs its own operation is meant as well.
  RankedMutex stopper_lock_{kStopperLockRank};
  StopProtocol protocol_ ABSL_GUARDED_BY(stopper_lock_);
  VmOperation* running_ ABSL_GUARDED_BY(stopper_lock_) = nullptr;
  // What that one was given.
  World* running_world_ ABSL_GUARDED_BY(stopper_lock_) = nullptr;
  // Nested operations of the present stop.
  uint32_t nested_ ABSL_GUARDED_BY(stopper_lock_) = 0;
  StopHistory history_;
  // Written under the lock; read without it to compute deadlines.
  std::atomic<int64_t> last_stop_end_{0};

  // The stop that a fork is made in.
  SafepointRecord fork_record_ ABSL_GUARDED_BY(stopper_lock_);

  // Futex: 1 once the VM thread runs no more of our code that others wait for.
  std::atomic<uint32_t> exited_{0};
  std::atomic<bool> in_operation_{false};
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_VM_THREAD_H_
