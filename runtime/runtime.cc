#include "runtime/runtime.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/absl_string.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/thread_state.h"
#include "runtime/base/tls_block.h"
#include "runtime/green/scheduler.h"
#include "runtime/options.h"
#include "runtime/os/backtrace_signal.h"
#include "runtime/os/fast_cpu_clock_choice.h"
#include "runtime/safepoint/handshake.h"
#include "runtime/safepoint/serve.h"
#include "runtime/safepoint/suspend.h"
#include "runtime/safepoint/vm_thread.h"
#include "runtime/safepoint/watchdog.h"
#include "runtime/sync/channel_core.h"
#include "runtime/sync/parking_lot.h"
#include "runtime/thread/cpu_times.h"
#include "runtime/thread/fence.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/wait_check.h"

namespace stillpoint {
namespace {

// Tells a thread that spins from one that waits.
std::string CpuTimeOf(const PinnedThread& thread) {
  const absl::StatusOr<ThreadCpuTimes> times = thread.GetCpuTimes();
  if (!times.ok()) return "";
  const auto text = [](int64_t nanos) {
    return absl::FormatDuration(
        absl::Trunc(absl::Nanoseconds(nanos), absl::Microseconds(1)));
  };
  return absl::StrCat(", CPU ", text(times->total), " of ",
                      text(times->elapsed));
}

std::string NamesOf(const ThreadSnapshot& threads, const Thread* except) {
  constexpr size_t kMaxNames = 16;
  std::string names;
  size_t count = 0;
  for (const PinnedThread& thread : threads) {
    if (&thread.thread() == except) continue;
    if (++count > kMaxNames) continue;
    absl::StrAppend(&names, count == 1 ? "" : ", ", ToAbsl(thread.name()), " (",
                    ToAbsl(ThreadStateName(thread.state())), ", tid ",
                    thread.tid(), CpuTimeOf(thread), ")");
  }
  if (count > kMaxNames) {
    absl::StrAppend(&names, " and ", count - kMaxNames, " more");
  }
  return names;
}

// In the child of a fork, whose only thread does not wait.
void ForgetWaiters() {
  ParkingLot::ResetInForkedChild();
  ChannelCore::ResetLocksInForkedChild();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Create(Options options) {
  if (absl::Status valid = CheckOptions(options); !valid.ok()) return valid;
  if (absl::Status allowed = CheckMayWait("Runtime::Create"); !allowed.ok()) {
    return allowed;
  }
  if (options.backtrace_signal != 0) {
    absl::Status installed = InstallBacktraceSignal(options.backtrace_signal);
    if (!installed.ok()) return installed;
  }
  // The caller may be Managed in another runtime.
  const WaitScope waiting(Thread::Current());
  absl::StatusOr<FenceChoice> fence = ChooseFence(options.fence);
  if (!fence.ok()) return fence.status();

  FastCpuClockChoice cpu_clock =
      ChooseFastCpuClock(options.cpu_clock_max_age.count());

  RegistryOptions registry_options;
  registry_options.fence = fence->mode;
  registry_options.start_protocol = options.start_protocol;
  registry_options.default_stack_size = options.stack_size;
  registry_options.timer_slack = options.timer_slack;
  registry_options.sink = options.event_sink;
  registry_options.serve_poll = &ServePoll;
  registry_options.cpu_clock = cpu_clock.config;
  auto registry = std::make_shared<Registry>(registry_options);

  WatchdogOptions watchdog_options;
  watchdog_options.timeout_nanos = options.safepoint_timeout.count();
  watchdog_options.abort_nanos = options.safepoint_abort.count();
  watchdog_options.backtrace_signal = options.backtrace_signal;
  watchdog_options.sink = options.event_sink;
  watchdog_options.hooks = options.watchdog_hooks;
  auto watchdog = std::make_shared<const Watchdog>(watchdog_options);

  VmThreadOptions vm_options;
  vm_options.name = absl::StrCat(options.name, "-vm");
  vm_options.min_mutator_nanos = options.min_mutator_time.count();
  vm_options.interval_nanos = options.safepoint_interval.count();
  vm_options.requester_may_run = options.requester_may_run;
  vm_options.sink = options.event_sink;
  absl::StatusOr<std::shared_ptr<VmThread>> vm_thread =
      VmThread::Start(registry, watchdog, std::move(vm_options));
  if (!vm_thread.ok()) return vm_thread.status();

  SchedulerOptions green;
  green.carriers = static_cast<uint32_t>(options.carriers);
  green.extra_carriers = static_cast<uint32_t>(options.extra_carriers);
  green.pin = options.pin_carriers;
  green.migrate = options.migrate_green_threads;
  green.stack_size = options.green_stack_size;
  green.time_slice = options.time_slice;
  green.native_handoff = options.native_handoff;
  green.name = options.name;
  green.sink = options.event_sink;
  auto scheduler = std::make_shared<Scheduler>(*registry, std::move(green));
  registry->KeepToTheEnd(scheduler);

  if (options.event_sink != nullptr) {
    options.event_sink->OnMessage(Severity::kInfo, fence->reason);
    options.event_sink->OnMessage(Severity::kInfo, cpu_clock.reason);
  }
  return std::unique_ptr<Runtime>(new Runtime(
      std::move(options), std::move(fence->reason), std::move(cpu_clock.reason),
      std::move(registry), std::move(watchdog), *std::move(vm_thread),
      std::move(scheduler)));
}

Runtime::Runtime(Options options, std::string fence_description,
                 std::string cpu_clock_description,
                 std::shared_ptr<Registry> registry,
                 std::shared_ptr<const Watchdog> watchdog,
                 std::shared_ptr<VmThread> vm_thread,
                 std::shared_ptr<Scheduler> scheduler)
    : options_(std::move(options)),
      fence_description_(std::move(fence_description)),
      cpu_clock_description_(std::move(cpu_clock_description)),
      registry_(std::move(registry)),
      watchdog_(std::move(watchdog)),
      vm_thread_(std::move(vm_thread)),
      scheduler_(std::move(scheduler)) {}

Runtime::~Runtime() {
  const absl::Status ended =
      Shutdown(Deadline::After(options_.shutdown_timeout));
  STILLPOINT_CHECK(!absl::IsFailedPrecondition(ended),
                   "a Runtime is destroyed where it cannot be: ",
                   std::string(ended.message()));
  if (!ended.ok() && options_.event_sink != nullptr) {
    options_.event_sink->OnMessage(Severity::kWarning,
                                   std::string(ended.message()));
  }
}

absl::StatusOr<ThreadHandle> Runtime::Start(ThreadOptions options,
                                            absl::AnyInvocable<void()> body) {
  if (options.kind == ThreadKind::kGreen) {
    return scheduler_->Start(std::move(options), std::move(body));
  }
  return StartThread(*registry_, std::move(options), std::move(body));
}

absl::Status Runtime::AttachCurrentThread(std::string_view name) {
  return stillpoint::AttachCurrentThread(*registry_, name);
}

absl::Status Runtime::DetachCurrentThread() {
  return stillpoint::DetachCurrentThread(*registry_);
}

size_t Runtime::ThreadCount() const { return registry_->population(); }

ThreadSnapshot Runtime::Threads() const {
  return ThreadSnapshot::Take(registry_);
}

absl::StatusOr<ThreadLocalSlot> Runtime::CreateThreadLocalSlot(
    ThreadLocalSlot::Destructor destructor) {
  return registry_->CreateThreadLocalSlot(destructor);
}

absl::Status Runtime::Execute(VmOperation& operation) {
  return vm_thread_->Execute(operation);
}

absl::Status Runtime::ExecuteAsync(std::unique_ptr<VmOperation> operation) {
  return vm_thread_->ExecuteAsync(std::move(operation));
}

absl::Status Runtime::AtSafepoint(std::string_view name,
                                  absl::FunctionRef<void(World&)> function) {
  FunctionOperation operation(name, function);
  return vm_thread_->Execute(operation);
}

absl::StatusOr<HandshakeResult> Runtime::Handshake(
    const ThreadHandle& target, std::string_view name,
    absl::FunctionRef<void(Thread&)> closure) {
  absl::StatusOr<size_t> done =
      Handshake(absl::MakeConstSpan(&target, 1), name, closure);
  if (!done.ok()) return done.status();
  return *done == 1 ? HandshakeResult::kDone : HandshakeResult::kGone;
}

absl::StatusOr<size_t> Runtime::Handshake(
    absl::Span<const ThreadHandle> targets, std::string_view name,
    absl::FunctionRef<void(Thread&)> closure) {
  const absl::StatusOr<bool> stopped = vm_thread_->InStoppedWorld(name);
  if (!stopped.ok()) return stopped.status();
  return HandshakeWith({registry_, name, *stopped, watchdog_}, targets,
                       closure);
}

absl::StatusOr<size_t> Runtime::HandshakeAll(
    std::string_view name, absl::FunctionRef<void(Thread&)> closure) {
  const absl::StatusOr<bool> stopped = vm_thread_->InStoppedWorld(name);
  if (!stopped.ok()) return stopped.status();
  return HandshakeWithAll({registry_, name, *stopped, watchdog_}, closure);
}

absl::Status Runtime::HandshakeAsync(
    const ThreadHandle& target, std::string_view name,
    absl::AnyInvocable<void(Thread&)> closure,
    absl::AnyInvocable<void(HandshakeResult)> settled) {
  const absl::StatusOr<bool> stopped = vm_thread_->InStoppedWorld(name);
  if (!stopped.ok()) return stopped.status();
  return RequestHandshake({registry_, name, *stopped, watchdog_}, target,
                          std::move(closure), std::move(settled));
}

absl::Status Runtime::InterruptWith(
    const ThreadHandle& target, std::string_view name,
    absl::AnyInvocable<void(Thread&)> closure,
    absl::AnyInvocable<void(HandshakeResult)> settled) {
  return InterruptByHandshake({registry_, name}, target, std::move(closure),
                              std::move(settled));
}

absl::StatusOr<HandshakeResult> Runtime::Suspend(const ThreadHandle& target) {
  constexpr std::string_view kName = "suspend";
  const absl::StatusOr<bool> stopped = vm_thread_->InStoppedWorld(kName);
  if (!stopped.ok()) return stopped.status();
  return SuspendThread({registry_, kName, *stopped, watchdog_}, target);
}

absl::StatusOr<HandshakeResult> Runtime::SuspendAsync(
    const ThreadHandle& target) {
  return RequestSuspension({registry_, "suspend"}, target);
}

absl::StatusOr<HandshakeResult> Runtime::Resume(const ThreadHandle& target) {
  return ResumeThread({registry_, "resume"}, target);
}

absl::StatusOr<std::string> Runtime::DumpThreads(ThreadDumpOptions options) {
  const int backtrace_signal = options_.backtrace_signal;
  const absl::StatusOr<bool> stopped =
      vm_thread_->InStoppedWorld("thread dump");
  if (!stopped.ok()) return stopped.status();
  if (*stopped) return DumpStoppedWorld(registry_, options, backtrace_signal);
  if (!options.at_safepoint) {
    return DumpByHandshakes(registry_, options, backtrace_signal);
  }
  std::string dump;
  const absl::Status done = AtSafepoint("thread dump", [&](World&) {
    dump = DumpStoppedWorld(registry_, options, backtrace_signal);
  });
  if (!done.ok()) return done;
  return dump;
}

std::vector<WorstStop> Runtime::WorstStops() const {
  return vm_thread_->WorstStops();
}

absl::Status Runtime::ForkPrepare() { return vm_thread_->ForkPrepare(); }

void Runtime::ForkParent() { vm_thread_->ForkParent(); }

void Runtime::ForkChild() {
  vm_thread_->ForkChild();
  scheduler_->BecomeForkedChild();
  ForgetWaiters();
}

absl::StatusOr<pid_t> Runtime::Fork() {
  const std::shared_ptr<VmThread> vm_thread = vm_thread_;
  const std::shared_ptr<Scheduler> scheduler = scheduler_;
  if (absl::Status prepared = vm_thread->ForkPrepare(); !prepared.ok()) {
    return prepared;
  }
  const pid_t child = fork();
  if (child == 0) {
    vm_thread->ForkChild();
    scheduler->BecomeForkedChild();
    ForgetWaiters();
    return child;
  }
  const int error = errno;
  vm_thread->ForkParent();
  if (child > 0) return child;
  return absl::ResourceExhaustedError(
      absl::StrCat("fork failed: ", std::strerror(error),
                   "; check ulimit -u, pids.max of the cgroup and memory"));
}

absl::Status Runtime::Shutdown(Deadline deadline) {
  // In the child of a fork there is nobody to wait for.
  if (registry_->InForkedChild()) return absl::OkStatus();
  constexpr int64_t kInterruptAgainNanos = 50'000'000;
  if (absl::Status allowed = CheckMayWait("Shutdown"); !allowed.ok()) {
    return allowed;
  }
  Thread* const current = Thread::Current();
  if (current != nullptr && current->kind() == ThreadKind::kGreen) {
    return absl::FailedPreconditionError(
        "Shutdown from a green thread, whose carrier has to end first: call it "
        "on a native thread");
  }
  if (current != nullptr && current->state() == ThreadState::kManaged) {
    return absl::FailedPreconditionError(
        "Shutdown in Managed: stops would wait for the caller, and in this "
        "runtime it would park for good on its way back; close the "
        "ManagedScope first");
  }
  const bool is_member =
      current != nullptr &&
      CurrentThreadHandle().registry().get() == registry_.get();

  registry_->BeginClosing();
  if (is_member) registry_->NoteCloser(*current);
  vm_thread_->RefuseRequests();
  bool all_left = false;
  while (true) {
    registry_->InterruptAll(current);
    const int64_t next = MonotonicNanos() + kInterruptAgainNanos;
    all_left = registry_->AwaitPopulation(
        registry_->closers(),
        Deadline::AtMonotonicNanos(std::min(next, deadline.monotonic_nanos())));
    if (all_left || deadline.passed()) break;
  }
  const bool carriers_ended = all_left && scheduler_->Stop(deadline);
  const bool vm_thread_ended = vm_thread_->Stop(deadline);
  if (!all_left) {
    const ThreadSnapshot remaining = Threads();
    const std::string names = NamesOf(remaining, current);
    if (!names.empty()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "shut down, but these threads have not left the runtime: ", names,
          ". They will park when they next poll or enter Managed; let threads "
          "end when a wait of theirs says Interrupted, and detach foreign ones "
          "before shutting down"));
    }
    // Counted, but not in the table yet, or not any more.
    const uint32_t left = registry_->population();
    const uint32_t closers = registry_->closers();
    if (left > closers) {
      return absl::DeadlineExceededError(absl::StrCat(
          "shut down, but ", left - closers,
          " threads are about to come or to go: they were being started, "
          "attached or detached"));
    }
  }
  if (!carriers_ended) {
    return absl::DeadlineExceededError(
        "shut down, but the carriers of green threads have not ended yet");
  }
  if (!vm_thread_ended) {
    return absl::DeadlineExceededError(
        absl::StrCat("shut down, but ", vm_thread_->DescribeBusy()));
  }
  return absl::OkStatus();
}

AttachScope::~AttachScope() {
  if (!status_.ok()) return;
  if (tls_block.lost_attaches > 0 && Thread::Current() == nullptr) {
    // This one among them; the runtime may be gone.
    --tls_block.lost_attaches;
    return;
  }
  const absl::Status detached = runtime_.DetachCurrentThread();
  STILLPOINT_CHECK(detached.ok(), "the end of an AttachScope: ",
                   std::string(detached.message()));
}

}  // namespace stillpoint
