// The façade: one managed runtime.

#ifndef STILLPOINT_RUNTIME_RUNTIME_H_
#define STILLPOINT_RUNTIME_RUNTIME_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/clock.h"
#include "runtime/observe/thread_dump.h"
#include "runtime/options.h"
#include "runtime/safepoint/stop_history.h"
#include "runtime/safepoint/vm_operation.h"
#include "runtime/safepoint/world.h"
#include "runtime/thread/handshake_queue.h"
#include "runtime/thread/start.h"
#include "runtime/thread/thread_handle.h"
#include "runtime/thread/thread_local_slot.h"
#include "runtime/thread/thread_snapshot.h"

namespace stillpoint {

class Registry;
class Scheduler;
class VmThread;
class Watchdog;

// A runtime owns a VM thread and the threads that it starts. Several may live
// in one process and do not know of each other; a thread is attached to one at
// a time. All functions may be called from any thread, unless they say
// otherwise; those that wait leave Managed meanwhile.
class Runtime {
 public:
  // Errors: InvalidArgument for an option, naming it; FailedPrecondition if a
  // fence mode was demanded that the kernel refuses, or from a VM operation;
  // ResourceExhausted if the VM thread cannot be created.
  static absl::StatusOr<std::unique_ptr<Runtime>> Create(
      Options options = Options());

  // Shutdown(options.shutdown_timeout); what it says goes to the event sink.
  // The calling thread must not be in Managed.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // --- Threads ---

  // Starts a thread, native or green as ThreadOptions::kind says, that runs
  // `body` in Native (open a ManagedScope in it) and ends when that returns.
  // `body` and what it captures are destroyed on the new thread; an exception
  // that leaves it ends the process.
  // Native: the new thread inherits the signal mask of the caller. Blocks for
  // the creation of the OS thread, and for the end of a stop that is on.
  // Green: docs/green_threads.md. The first one starts the carriers, which
  // blocks as for a native thread, and they inherit that caller's signal mask.
  // A caller that is not attached is attached for the length of the call.
  // Errors: ResourceExhausted naming the limit that was reached, with
  // nothing left behind; InvalidArgument for a stack size; FailedPrecondition
  // after shutdown has begun, from a VM operation, with a ranked lock held or
  // inside a NoSafepointScope.
  absl::StatusOr<ThreadHandle> Start(ThreadOptions options,
                                     absl::AnyInvocable<void()> body);
  absl::StatusOr<ThreadHandle> Start(absl::AnyInvocable<void()> body) {
    return Start(ThreadOptions(), std::move(body));
  }

  // Makes the calling OS thread, which the runtime did not start, a member, in
  // Native. Nests: each success needs its own detach. `name` counts at the
  // first; the name that the system shows is left alone. A thread that ends
  // without detaching is detached on its way out.
  // Blocks for the end of a stop that is on. Errors: FailedPrecondition if it
  // is attached to another runtime, and as for Start; ResourceExhausted.
  absl::Status AttachCurrentThread(std::string_view name = {});

  // The inverse, in Native; the last one runs the destructors of thread-local
  // slots and leaves the runtime. Also works after Shutdown. Errors:
  // FailedPrecondition if the thread is not attached here, was started by the
  // runtime, is not in Native, or in the destructor of a thread-local slot.
  absl::Status DetachCurrentThread();

  // Members now: started threads that have not ended, and attached ones.
  size_t ThreadCount() const;

  // The members, to be looked at without holding a lock or stopping anything.
  ThreadSnapshot Threads() const;

  // A pointer of the embedder's in every thread; Thread::local reads it.
  // `destructor` may be null. Error: ResourceExhausted after
  // ThreadLocalSlot::kMaxSlots.
  absl::StatusOr<ThreadLocalSlot> CreateThreadLocalSlot(
      ThreadLocalSlot::Destructor destructor = nullptr);

  // --- Safepoints ---

  // Stops the world, runs `operation` on the VM thread (or here, if that is
  // idle and Options::requester_may_run), lets the world go, and returns when
  // that is done. From any thread, attached or not, in any state; an attached
  // caller is Blocked meanwhile. Operations requested at the same time share a
  // stop. From inside an operation that allows it, `operation` runs at once,
  // inline. Not interruptible: a collector asks for memory with this, and has
  // to get it. It waits for the operations in front and for mutators to poll.
  // Errors: FailedPrecondition, at once, inside an operation that allows no
  // nested ones, with a ranked lock held, inside a NoSafepointScope, or after
  // shutdown has begun; Unavailable if the runtime is shut down while a thread
  // keeps the world from stopping.
  absl::Status Execute(VmOperation& operation);

  // Queues `operation` and returns: it runs in a later stop, on the VM thread,
  // and is destroyed there; if the runtime ends before, without having run.
  // Also from inside an operation. A Managed caller waits for nothing, unless
  // the queue's lock is contended at that moment: then like Execute, on the way
  // back. Errors: as for Execute, and InvalidArgument for null; `operation` is
  // destroyed then.
  absl::Status ExecuteAsync(std::unique_ptr<VmOperation> operation);

  // Execute for a function.
  absl::Status AtSafepoint(std::string_view name,
                           absl::FunctionRef<void(World&)> function);

  // --- Handshakes ---
  //
  // A closure is run for one thread while that thread cannot run managed code,
  // and no other thread is stopped: by the target itself where it polls or
  // comes back to Managed, or, while it is safe, by the requester as its proxy,
  // for which the target need not run at all. Either way `Thread&` is the
  // target, and the closure may read its stack, as an operation may; it runs
  // once, or never if the target leaves the runtime before ("gone").
  //
  // A closure runs in Managed with the world running (it may touch managed
  // data). It may neither poll, wait nor change its thread's state: what waits
  // is refused with FailedPrecondition, a scope dies in debug builds, a poll
  // that would stop dies in every build. It may Unpark and Interrupt. An
  // exception that leaves it ends the process. Closures of one target run one
  // at a time, in no promised order, those of several at the same time.
  //
  // Caller: any thread in any state but one that is attached to another
  // runtime. An unattached one is attached for the length of the call. From an
  // operation, at a safepoint, the closure runs at once. Errors:
  // FailedPrecondition, at once, in a closure, in an operation without a
  // safepoint, with a ranked lock held, inside a NoSafepointScope, attached
  // elsewhere, or after shutdown has begun; InvalidArgument for a thread of
  // another runtime; Unavailable if the runtime is shut down while a target
  // does not poll.

  // With one thread, which may be the caller. Waits for the target to poll or
  // to become safe, and like every way into Managed for the end of a stop. Not
  // interruptible. What the closure did is visible to the caller.
  absl::StatusOr<HandshakeResult> Handshake(
      const ThreadHandle& target, std::string_view name,
      absl::FunctionRef<void(Thread&)> closure);

  // With several, all asked before the first is waited for. How many are done;
  // the others are gone. For a thread that is there twice it runs twice. With
  // Unavailable some closures may have run.
  absl::StatusOr<size_t> Handshake(absl::Span<const ThreadHandle> targets,
                                   std::string_view name,
                                   absl::FunctionRef<void(Thread&)> closure);

  // With every member that is one throughout the call, an attached caller
  // included; those that come or go meanwhile may be among them.
  absl::StatusOr<size_t> HandshakeAll(std::string_view name,
                                      absl::FunctionRef<void(Thread&)> closure);

  // Asks, and does not wait for the target: if that is safe `closure` runs
  // here, else on the target, at a poll or when it comes back to Managed; so
  // for a target that stays in native code it may take that long. `settled`
  // may be null; it is called once, with what became of it, by the thread that
  // runs the closure or finds the target gone, under the rules for closures,
  // perhaps before this returns. Both are destroyed there.
  absl::Status HandshakeAsync(
      const ThreadHandle& target, std::string_view name,
      absl::AnyInvocable<void(Thread&)> closure,
      absl::AnyInvocable<void(HandshakeResult)> settled = nullptr);

  // Interrupts `target`, and has it run `closure` itself when it next polls or
  // comes back to Managed, which the interrupt makes a wait of ours do; before
  // any managed code, so that an interpreter finds there what it was
  // interrupted for. Never by a proxy; else closure and `settled` are as for
  // HandshakeAsync. Never waits; any thread in any state. Errors:
  // FailedPrecondition in a closure or after shutdown has begun;
  // InvalidArgument.
  absl::Status InterruptWith(
      const ThreadHandle& target, std::string_view name,
      absl::AnyInvocable<void(Thread&)> closure,
      absl::AnyInvocable<void(HandshakeResult)> settled = nullptr);

  // --- Suspended threads ---
  //
  // A suspended thread executes no managed code until it has been resumed as
  // often as it was suspended: it waits, Blocked, at its next poll or on its
  // way into Managed, where it holds no lock of the runtime. Native code it
  // goes on to execute. Stops, operations and handshakes go on without it, and
  // an interrupt or a permit stays pending until it runs again. Shutdown takes
  // all suspensions back.

  // Suspends `target` and waits until it executes no managed code; of the
  // caller itself: until it has been resumed. Waits and fails like Handshake. A
  // caller that is being suspended itself is so before the target is: of two
  // threads that suspend each other one goes on, and can resume the other. Done
  // or, for a thread that has left or leaves, gone.
  absl::StatusOr<HandshakeResult> Suspend(const ThreadHandle& target);

  // The same without the wait: the target may still be in managed code. It
  // counts as suspended from the call on. Any thread in any state, also in a
  // closure. (Two threads that do this to each other may both be suspended.)
  // Errors: FailedPrecondition after shutdown has begun; InvalidArgument.
  absl::StatusOr<HandshakeResult> SuspendAsync(const ThreadHandle& target);

  // Takes one suspension back, whoever asked for it; the last one wakes the
  // target. Never waits; any thread in any state. Errors: FailedPrecondition if
  // it is not suspended; InvalidArgument.
  absl::StatusOr<HandshakeResult> Resume(const ThreadHandle& target);

  // --- Looking at it ---

  // The worst ten stops so far by time to safepoint (waiting for Threads_lock
  // included), longest first, each with what it waited for. Any thread, any
  // state; never waits for a stop.
  std::vector<WorstStop> WorstStops() const;

  // A text with a line for each thread: name, number, tid, kind, state, what it
  // waits for and who owns that, CPU time and age, stack; more on request
  // (observe/thread_dump.h; runtime/dump_signal.h makes one for a signal). Any
  // thread; waits for each thread to poll, but no longer than it has patience;
  // at a safepoint like Execute. Errors: as for HandshakeAll or Execute.
  absl::StatusOr<std::string> DumpThreads(
      ThreadDumpOptions options = ThreadDumpOptions());

  // --- fork(2) ---
  //
  // A plain fork followed by exec or _exit is safe at any time, and needs none
  // of these. They are for a child that goes on: it is made while the world
  // stands still and nobody is inside the runtime.

  // Stops the world and takes every lock of the runtime. On success the same
  // thread calls fork(2), nothing else of this runtime, and then ForkParent or
  // ForkChild. Caller: unattached or in Native. One runtime at a time: others
  // in the process are of no use in the child. Waits for the stop that is on
  // and for mutators to poll. Errors: FailedPrecondition in Managed, in a VM
  // operation, with a ranked lock held, inside a NoSafepointScope, or once the
  // runtime has ended (a plain fork will do then); Unavailable as for Execute.
  absl::Status ForkPrepare();

  // In the parent, also after fork(2) failed: lets the world go.
  void ForkParent();

  // In the child: the calling thread is its only one and is attached to
  // nothing; it may exec, _exit, return from its body or an AttachScope, or
  // create a new Runtime. This one has ended:
  // it has no threads, refuses requests, and can be destroyed; handles answer
  // "gone". What its threads owned is not destroyed. A Mutex that another
  // thread had stays held for ever; a Channel that another thread was using is
  // in an unknown state; nobody waits any more.
  void ForkChild();

  // All of it: the child's process id in the parent, 0 in the child. Errors: as
  // for ForkPrepare; ResourceExhausted if fork(2) fails, with the world going
  // on.
  absl::StatusOr<pid_t> Fork();

  // --- Facts ---

  // The fence mode that was chosen, and why. One line.
  std::string_view fence_description() const { return fence_description_; }
  // Which clock CurrentThreadCpuNanos() reads in this runtime's threads, and
  // why. One line.
  std::string_view cpu_clock_description() const {
    return cpu_clock_description_;
  }
  const Options& options() const { return options_; }

  // --- The end ---

  // Refuses new threads and operations, interrupts every member, waits until
  // all but those that have called this have left, and ends the VM thread.
  // Members that go on waiting are interrupted again every 50 ms.
  // In the child of a fork there is nobody to wait for: it returns at once.
  // Whatever it returns, it is final: afterwards a thread that polls, or comes
  // back to Managed, parks for good; it is neither unwound nor killed, and what
  // it refers to stays valid. Calling it again waits again.
  // Errors: DeadlineExceeded naming the threads that remain, with their states
  // and CPU times, or saying that an operation is still running;
  // FailedPrecondition, with nothing done, for a caller in Managed, in a VM
  // operation, or with a ranked lock held.
  absl::Status Shutdown(Deadline deadline);

 private:
  Runtime(Options options, std::string fence_description,
          std::string cpu_clock_description, std::shared_ptr<Registry> registry,
          std::shared_ptr<const Watchdog> watchdog,
          std::shared_ptr<VmThread> vm_thread,
          std::shared_ptr<Scheduler> scheduler);

  const Options options_;
  const std::string fence_description_;
  const std::string cpu_clock_description_;
  const std::shared_ptr<Registry> registry_;
  const std::shared_ptr<const Watchdog> watchdog_;
  const std::shared_ptr<VmThread> vm_thread_;
  const std::shared_ptr<Scheduler> scheduler_;
};

// Attaches the calling thread for a scope.
class AttachScope {
 public:
  // Look at status() before anything else.
  explicit AttachScope(Runtime& runtime, std::string_view name = {})
      : runtime_(runtime), status_(runtime.AttachCurrentThread(name)) {}
  // Detaches, if it had attached. In Native. Does nothing if the thread's end
  // has done so before, or in the child of a fork.
  ~AttachScope();
  AttachScope(const AttachScope&) = delete;
  AttachScope& operator=(const AttachScope&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  Runtime& runtime_;
  const absl::Status status_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_RUNTIME_H_
