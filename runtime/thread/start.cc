#include "runtime/thread/start.h"

#include <cxxabi.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/absl_string.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/tls_block.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"
#include "runtime/thread/cpu_times.h"
#include "runtime/thread/native_record.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/threads_lock.h"
#include "runtime/thread/timer_slack.h"
#include "runtime/thread/transition.h"
#include "runtime/thread/wait_check.h"

// The shared object that this code is linked into; the loader keeps it as long
// as a thread has something registered. The compiler's name for it, declared
// nowhere.
extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;

namespace stillpoint {
namespace {

// ThreadRecord::start_step, used by the two protocols that await the child.
enum StartStep : uint32_t {
  kNotAwaited = 0,
  kAwaited = 1,   // the starter waits for the child's report
  kReported = 2,  // the child runs, and waits for leave to go on
  kReleased = 3,  // the starter has given up its locks
};

void AdvanceStep(NativeRecord& record, StartStep to) {
  // release (M18): pairs with the acquire in AwaitStep.
  record.start_step.store(to, std::memory_order_release);
  FutexWake(record.start_step, 1);
}

void AwaitStep(NativeRecord& record, StartStep wanted) {
  uint32_t step;
  // acquire (M18): pairs with the release in AdvanceStep.
  while ((step = record.start_step.load(std::memory_order_acquire)) < wanted) {
    FutexWait(record.start_step, step, Deadline::Infinite());
  }
}

// Makes the calling OS thread the owner of `thread`.
void Bind(Thread& thread, const StackBounds& stack) {
  NativeRecord& record = NativeRecordOf(thread);
  record.cpu.fast.Begin(record.keep_alive->cpu_clock());
  tls_block.current = &thread;
  tls_block.state = &thread.state_word();
  // relaxed (M28): see Thread::tid().
  record.tid.store(CurrentTid(), std::memory_order_relaxed);
  record.stack = stack;
}

// The calling thread, in a safe state, leaves its runtime.
void LeaveRuntime(Registry& registry, Thread& thread) {
  RestoreTimerSlack();
  // Before anything is held: a proxy's closure may have to end first.
  thread.record().handshakes.Close();
  {
    MembershipChange change(registry.threads_lock(), MembershipChange::kLeave);
    registry.Leave(thread);
  }
  EndCpuAccount(thread);
  tls_block.current = nullptr;
  tls_block.state = nullptr;
  registry.Retire(thread);
}

// noexcept: an exception that leaves the body ends the process, as it does for
// std::thread.
void RunBody(absl::AnyInvocable<void()>& body) noexcept { body(); }

void* ThreadMain(void* argument) {
  Thread& thread = *static_cast<Thread*>(argument);
  NativeRecord& record = NativeRecordOf(thread);
  // relaxed (M18): written by the starter before this thread was created.
  if (record.start_step.load(std::memory_order_relaxed) == kAwaited) {
    // The starter holds Threads_lock. Report before touching anything that
    // could need the loader, an allocator's lock, or thread-local storage that
    // is set up lazily (incidents A3, D9).
    AdvanceStep(record, kReported);
    AwaitStep(record, kReleased);
  }
  const StackBounds stack = CurrentStackBounds();
  // A collector that scans nothing would free what the thread uses.
  STILLPOINT_CHECK(stack.high != 0, "there is no memory to find the stack of ",
                   "the new thread ", record.name);
  Bind(thread, stack);
  SetCurrentOsThreadName(record.name);
  // release (M8): publishes the stack bounds. Safe to safe: it does not poll.
  thread.state_word().store(ThreadState::kNative, std::memory_order_release);
  record.keep_alive->ApplyTimerSlack(record.timer_slack);

  RunBody(record.body);

  // In the child of a fork that the body has made: it is no member there.
  if (Thread::Current() != &thread) return nullptr;

  STILLPOINT_CHECK(
      thread.state() == ThreadState::kNative, "the body of thread ",
      record.name, " returned in ", ThreadStateName(thread.state()),
      ": every scope that it opened must be closed before it returns");
  STILLPOINT_CHECK(tls_block.held_count == 0, "the body of thread ",
                   record.name, " returned holding a ranked lock");
  record.body = nullptr;  // destroys captures while they may still use us
  Registry& registry = *record.keep_alive;
  registry.RunThreadLocalDestructors(thread);
  LeaveRuntime(registry, thread);
  return nullptr;
}

absl::Status CreateOsThread(const Registry& registry,
                            const ThreadOptions& options, Thread& thread) {
  OsThreadOptions os_options;
  os_options.stack_size = options.stack_size != 0
                              ? options.stack_size
                              : registry.default_stack_size();
  return StartOsThread(os_options, &ThreadMain, &thread);
}

// The two protocols that create and await the child while holding the lock.
absl::Status CreateUnderLock(Registry& registry, const ThreadOptions& options,
                             Thread& thread) {
  {
    MembershipChange change(registry.threads_lock(), MembershipChange::kJoin);
    registry.Publish(thread, ThreadState::kNew);
    absl::Status created = CreateOsThread(registry, options, thread);
    if (!created.ok()) {
      registry.Leave(thread);
      return created;
    }
    // Against I4, on purpose: this wait under the lock is what the protocol is
    // about. The child needs no lock to report.
    AwaitStep(NativeRecordOf(thread), kReported);
  }
  AdvanceStep(NativeRecordOf(thread), kReleased);
  return absl::OkStatus();
}

absl::Status CreateOutsideLock(Registry& registry, const ThreadOptions& options,
                               Thread& thread) {
  {
    MembershipChange change(registry.threads_lock(), MembershipChange::kJoin);
    registry.Publish(thread, ThreadState::kNew);
  }
  // A member from here on, but New is safe: a stop does not wait for it.
  absl::Status created = CreateOsThread(registry, options, thread);
  if (!created.ok()) {
    MembershipChange change(registry.threads_lock(), MembershipChange::kLeave);
    registry.Leave(thread);
  }
  return created;
}

// Detaches a foreign thread that ends without having done so.
void DetachAtThreadExit(void* /*unused*/) {
  tls_block.detaches_at_exit = false;
  Thread* current = Thread::Current();
  if (current == nullptr) return;
  // exit() in an operation that this thread runs itself, in the VM thread's
  // place. It holds the locks of the stop, which never ends, like those of
  // every other thread of the process.
  if (tls_block.vm_thread_of != nullptr) return;
  // A started thread ends in ThreadMain and is never seen here attached.
  if (current->state() == ThreadState::kManaged) {
    LeaveManaged(*current, ThreadState::kNative);
  }
  Registry& registry = *current->record().keep_alive;
  if (registry.InForkedChild()) return;  // a stop that was on never ends
  registry.RunThreadLocalDestructors(*current);
  tls_block.lost_attaches += current->record().attach_depth;
  LeaveRuntime(registry, *current);
}

// Sees to it that the calling thread is detached at its end. Not by a
// thread-local object: that is destroyed once, and the destructor of an older
// one, which runs after it, may attach again.
void RegisterDetachAtThreadExit() {
  if (tls_block.detaches_at_exit) return;
  tls_block.detaches_at_exit = true;
  abi::__cxa_thread_atexit(&DetachAtThreadExit, nullptr, &__dso_handle);
}

}  // namespace

absl::StatusOr<ThreadHandle> StartThread(Registry& registry,
                                         ThreadOptions options,
                                         absl::AnyInvocable<void()> body) {
  if (absl::Status allowed = CheckMayWait("Start"); !allowed.ok()) {
    return allowed;
  }
  if (!body) {
    return absl::InvalidArgumentError("Start needs a body to run");
  }
  if (options.timer_slack.has_value()) {
    absl::Status valid = CheckTimerSlack(*options.timer_slack);
    if (!valid.ok()) return valid;
  }
  // Blocked even where no lock is waited for: creating an OS thread takes tens
  // of microseconds that a stop should not wait for.
  WaitScope waiting(Thread::Current());
  absl::StatusOr<Thread*> admitted = registry.Admit({.name = options.name});
  if (!admitted.ok()) return admitted.status();
  Thread& thread = **admitted;
  NativeRecord& record = NativeRecordOf(thread);
  record.timer_slack = options.timer_slack;
  record.body = std::move(body);
  // Made now: the thread may have ended before it could be made later.
  // relaxed (M14): this thread has claimed the slot.
  ThreadHandle handle(registry.shared_from_this(), thread,
                      record.generation.load(std::memory_order_relaxed));
  const bool outside =
      registry.threads_lock().protocol() == StartProtocol::kOutside;
  // relaxed (M18): published to the child by its creation.
  record.start_step.store(outside ? kNotAwaited : kAwaited,
                          std::memory_order_relaxed);
  absl::Status created = outside ? CreateOutsideLock(registry, options, thread)
                                 : CreateUnderLock(registry, options, thread);
  if (!created.ok()) {
    record.body = nullptr;
    record.handshakes.Close();
    registry.Retire(thread);
    return created;
  }
  return handle;
}

void BecomeCarrier(Registry& registry, Thread& line) {
  Bind(line, StackBounds());
  SetCurrentOsThreadName(line.record().name);
  registry.ApplyTimerSlack(std::nullopt);
  // release (M8): what was written above, for who sees a carrier.
  line.state_word().store(ThreadState::kCarrier, std::memory_order_release);
}

void StopBeingCarrier(Registry& registry, Thread& line) {
  line.record().handshakes.Close();
  // release (M8): it is none any more.
  line.state_word().store(ThreadState::kTerminated, std::memory_order_release);
  EndCpuAccount(line);
  tls_block.current = nullptr;
  tls_block.state = nullptr;
  registry.Retire(line);
}

absl::Status AttachCurrentThread(Registry& registry, std::string_view name,
                                 AttachStack find_stack) {
  if (absl::Status allowed = CheckMayWait("AttachCurrentThread");
      !allowed.ok()) {
    return allowed;
  }
  if (Thread* current = Thread::Current(); current != nullptr) {
    if (current->record().keep_alive.get() != &registry) {
      return absl::FailedPreconditionError(absl::StrCat(
          "thread ", ToAbsl(current->name()),
          " is attached to another runtime: a thread belongs to one at a "
          "time, so detach it there first"));
    }
    ++current->record().attach_depth;
    return absl::OkStatus();
  }
  // A collector that scans nothing would free what the thread uses.
  const StackBounds stack =
      find_stack == AttachStack::kFind ? CurrentStackBounds() : StackBounds();
  if (stack.high == 0 && find_stack == AttachStack::kFind) {
    return absl::ResourceExhaustedError(
        "cannot find the calling thread's stack, which on the main thread "
        "takes "
        "/proc/self/maps: check the number of open files (ulimit -n), that "
        "/proc is mounted, and memory");
  }
  absl::StatusOr<Thread*> admitted =
      registry.Admit({.name = name, .foreign = true});
  if (!admitted.ok()) return admitted.status();
  Thread& thread = **admitted;
  Bind(thread, stack);
  {
    MembershipChange change(registry.threads_lock(), MembershipChange::kJoin);
    registry.Publish(thread, ThreadState::kNative);
  }
  thread.record().attach_depth = 1;
  registry.ApplyTimerSlack(std::nullopt);
  RegisterDetachAtThreadExit();
  return absl::OkStatus();
}

absl::Status DetachCurrentThread(Registry& registry) {
  if (absl::Status allowed = CheckMayWait("DetachCurrentThread");
      !allowed.ok()) {
    return allowed;
  }
  Thread* current = Thread::Current();
  if (current == nullptr || current->record().keep_alive.get() != &registry) {
    return absl::FailedPreconditionError(
        "this thread is not attached to this runtime");
  }
  ThreadRecord& record = current->record();
  if (record.attach_depth == 0) {
    return absl::FailedPreconditionError(
        "a thread that the runtime started detaches by returning from its "
        "body; DetachCurrentThread is for attached ones");
  }
  const uint32_t own = record.foreign ? 1 : 0;
  if (record.attach_depth > own) {
    --record.attach_depth;
    return absl::OkStatus();
  }
  if (record.leaving) {
    return absl::FailedPreconditionError(
        "detaching in the destructor of a thread-local slot: the thread is "
        "being detached already");
  }
  if (current->state() != ThreadState::kNative) {
    return absl::FailedPreconditionError(
        absl::StrCat("detaching in ", ToAbsl(ThreadStateName(current->state())),
                     ": close the ManagedScope first"));
  }
  registry.RunThreadLocalDestructors(*current);
  LeaveRuntime(registry, *current);
  return absl::OkStatus();
}

}  // namespace stillpoint
