#include "runtime/green/scheduler.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/absl_string.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/event_sink.h"
#include "runtime/base/tls_block.h"
#include "runtime/green/accounting.h"
#include "runtime/green/context.h"
#include "runtime/green/green_thread.h"
#include "runtime/green/stack_overflow.h"
#include "runtime/green/yield.h"
#include "runtime/os/cpu_clock.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"
#include "runtime/os/processors.h"
#include "runtime/os/signal_stack.h"
#include "runtime/safepoint/serve.h"
#include "runtime/thread/green_cpu_times.h"
#include "runtime/thread/green_record.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/start.h"
#include "runtime/thread/temporary_member.h"
#include "runtime/thread/transition.h"
#include "runtime/thread/wait_check.h"

namespace stillpoint {
namespace {

// What is said before the process ends.
void ReportException(const Thread& thread) noexcept {
  std::string what = "of an unknown type";
  try {
    throw;
  } catch (const std::exception& exception) {
    what = absl::StrCat("whose what() is: ", exception.what());
  } catch (...) {
  }
  const std::string line = absl::StrCat("stillpoint: the body of green thread ",
                                        ToAbsl(thread.name()),
                                        " ended by an exception ", what, "\n");
  // The process ends; there is nobody to tell that this fails.
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, line.data(), line.size());
}

// noexcept: an exception that leaves the body ends the process by
// std::terminate, as it does for std::thread, with the exception current.
void RunBody(GreenThread& thread) noexcept {
  try {
    thread.body();
  } catch (...) {
    ReportException(thread.line);
    std::terminate();
  }
  // What it has captured is destroyed while it may still use the runtime.
  thread.body = nullptr;
}

// In a signal handler: what it reads, the interrupted thread has written. (Not
// inside Mount, where the carrier runs on the stack of the thread that leaves.)
bool FindRunning(RunningGreenThread& running) {
  const GreenThread* thread = GreenThread::Current();
  if (thread == nullptr) return false;
  running.stack = &thread->stack;
  running.name = thread->line.name();
  return true;
}

}  // namespace

struct Scheduler::CarrierStart {
  std::shared_ptr<Scheduler> scheduler;
  Carrier* carrier;
};

Scheduler::Scheduler(Registry& registry, SchedulerOptions options)
    : registry_(registry),
      options_(std::move(options)),
      wanted_carriers_(std::min<uint32_t>(
          options_.carriers != 0 ? options_.carriers
                                 : static_cast<uint32_t>(UsableProcessors()),
          kMaxCarriers)),
      processors_(AllowedCpuCount()),
      helpers_(std::make_shared<HelperPool>(options_.name,
                                            registry_.weak_from_this())),
      monitor_(*this) {
  registry_.control().yield_slice = [](Thread&) { Yield(); };
}

Scheduler::~Scheduler() {
  for (std::atomic<Carrier*>& entry : carriers_) delete entry.load();
}

// --- Starting. ---

absl::StatusOr<ThreadHandle> Scheduler::Start(ThreadOptions options,
                                              absl::AnyInvocable<void()> body) {
  if (absl::Status allowed = CheckMayWait("Start"); !allowed.ok()) {
    return allowed;
  }
  if (!body) return absl::InvalidArgumentError("Start needs a body to run");
  if (options.timer_slack.has_value()) {
    return absl::InvalidArgumentError(
        "a green thread has no timer slack of its own: set the runtime's, "
        "which its carriers have");
  }
  const TemporaryMember member(registry_, "starts a green thread",
                               AttachStack::kLeaveOut);
  if (!member.status().ok()) return member.status();
  // relaxed (M87): once it is set it stays, and EnsureCarriers looks again.
  if (!started_.load(std::memory_order_relaxed)) [[unlikely]] {
    if (absl::Status started = EnsureCarriers(); !started.ok()) return started;
  }
  GreenThread* const self = GreenThread::Current();
  const bool on_our_carrier =
      self != nullptr && &self->home->scheduler_ == this;
  // Until the thread has entered Managed, where it may give way.
  Carrier* here = on_our_carrier ? self->home : nullptr;
  const size_t size = options.stack_size != 0    ? options.stack_size
                      : options_.stack_size != 0 ? options_.stack_size
                                                 : kDefaultStackSize;
  absl::StatusOr<Stack*> stack =
      on_our_carrier ? here->stacks().Get(size)
                     : StackCache(stack_pool_, /*batch=*/1).Get(size);
  if (!stack.ok()) return stack.status();
  const auto give_back = [&] {
    if (on_our_carrier) {
      here->stacks().Put(*stack);
    } else {
      StackCache(stack_pool_, /*batch=*/1).Put(*stack);
    }
  };
  absl::StatusOr<Thread*> admitted =
      registry_.Admit({.name = options.name,
                       .kind = ThreadKind::kGreen,
                       .share = on_our_carrier ? &here->share() : nullptr});
  if (!admitted.ok()) {
    give_back();
    return admitted.status();
  }
  Thread& thread = **admitted;
  GreenRecord& record = GreenRecordOf(thread);
  const StackBounds whole = (*stack)->bounds();
  auto* const green = new (reinterpret_cast<void*>(
      (whole.high - sizeof(GreenThread)) & ~(alignof(GreenThread) - 1)))
      GreenThread(thread, **stack);
  record.stack = {whole.low, reinterpret_cast<uintptr_t>(green)};
  record.locals = green->locals;
  green->body = std::move(body);
  // relaxed (M86): published with the thread.
  record.account.home.store(0, std::memory_order_relaxed);
  green->context.Prepare(record.stack, &Entry, green);
  // relaxed (M14): this thread has claimed the slot.
  ThreadHandle handle(registry_.shared_from_this(), thread,
                      record.generation.load(std::memory_order_relaxed));

  {
    // Membership changes while somebody is Managed.
    const ManagedScope managed;
    if (on_our_carrier) here = self->home;
    registry_.PublishGreen(thread, on_our_carrier ? &here->share() : nullptr);
  }
  if (on_our_carrier) {
    // It has just been started: at the same tick, for all purposes.
    green->ready_since = record.account.began.load();
    here->PushAnywhere(*green);
  } else {
    if (kGreenCpuTimes) green->ready_since = GreenTicks(thread.control());
    global_.Push(*green);
    NoteWaiting();
    WakeOne();
  }
  return handle;
}

void Scheduler::Entry(void* argument) {
  GreenThread& self = *static_cast<GreenThread*>(argument);
  self.home->FinishSwitch();
  Thread& thread = self.line;
  ThreadRecord& record = thread.record();
  // release (M8): as in ThreadMain. Safe to safe: it does not poll.
  thread.state_word().store(ThreadState::kNative, std::memory_order_release);

  RunBody(self);

  STILLPOINT_CHECK(
      thread.state() == ThreadState::kNative, "the body of green thread ",
      record.name, " returned in ", ThreadStateName(thread.state()),
      ": every scope that it opened must be closed before it returns");
  Registry& registry = self.home->scheduler_.registry();
  registry.RunThreadLocalDestructors(thread);
  record.handshakes.Close();
  if (EnterManagedUnlessClosed(thread)) {
    registry.LeaveGreen(thread, self.home->share());
  } else {
    registry.LeaveGreenClosed(thread, self.home->share());
  }
  self.home->Exit(self);
}

absl::Status Scheduler::EnsureCarriers() {
  // The lock is held while OS threads are created.
  const WaitScope waiting(Thread::Current());
  RankedMutexLock lock(start_lock_);
  if (started_.load()) return absl::OkStatus();
  if (absl::Status supported = CheckContextSupport(); !supported.ok()) {
    return supported;
  }
  InstallStackOverflowHandler(&FindRunning);
  absl::Status last;
  for (uint32_t i = carrier_count(); i < wanted_carriers_ && last.ok(); ++i) {
    last = StartCarrier();
  }
  if (carrier_count() == 0) return last;
  if (absl::Status watched = monitor_.Start(shared_from_this());
      !watched.ok()) {
    return watched;
  }
  if (!last.ok() && options_.sink != nullptr) {
    options_.sink->OnMessage(
        Severity::kWarning,
        absl::StrCat("only ", carrier_count(), " of ", wanted_carriers_,
                     " carriers could be started: ", last.message()));
  }
  started_.store(true);
  return absl::OkStatus();
}

absl::Status Scheduler::StartCarrier() {
  const uint32_t index = carrier_count_.load();
  if (index >= kMaxCarriers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a runtime has at most ", kMaxCarriers, " carriers"));
  }
  absl::StatusOr<Thread*> admitted =
      registry_.Admit({.name = absl::StrCat(options_.name, "-carrier-", index),
                       .kind = ThreadKind::kCarrier});
  if (!admitted.ok()) return admitted.status();
  auto carrier = std::make_unique<Carrier>(*this, **admitted, index);
  auto start = std::make_unique<CarrierStart>(
      CarrierStart{shared_from_this(), carrier.get()});
  running_.fetch_add(1);
  absl::Status created =
      StartOsThread(OsThreadOptions(), &CarrierMain, start.get());
  if (!created.ok()) {
    running_.fetch_sub(1);
    (*admitted)->record().handshakes.Close();
    registry_.Retire(**admitted);
    return created;
  }
  start.release();
  // release (M87): first the carrier, then that it is there.
  carriers_[index].store(carrier.release(), std::memory_order_release);
  carrier_count_.store(index + 1, std::memory_order_release);
  return created;
}

void* Scheduler::CarrierMain(void* argument) {
  std::unique_ptr<CarrierStart> start(static_cast<CarrierStart*>(argument));
  const std::shared_ptr<Scheduler> scheduler = std::move(start->scheduler);
  Carrier& carrier = *start->carrier;
  start = nullptr;
  scheduler->RunCarrier(carrier);
  return nullptr;
}

void Scheduler::RunCarrier(Carrier& carrier) {
  Thread& line = carrier.line();
  BecomeCarrier(registry_, line);
  if (options_.pin) PinCurrentThread(carrier.index());
  {
    SignalStack signals;
    // Without it an overflow ends the process all the same, without a sentence.
    if (absl::Status status = signals.Install();
        !status.ok() && options_.sink != nullptr) {
      options_.sink->OnMessage(Severity::kWarning,
                               std::string(status.message()));
    }
    carrier.Run();
  }
  StopBeingCarrier(registry_, line);
  // The last one tells who stops the scheduler.
  if (running_.fetch_sub(1) == 1) FutexWake(running_, INT32_MAX);
}

// --- Ending. ---

bool Scheduler::Stop(Deadline deadline) {
  // Waits for a start of carriers that is going on; none begins afterwards,
  // since the registry admits nobody any more.
  { RankedMutexLock lock(start_lock_); }
  ending_.store(true);
  for (uint32_t i = 0; i < carrier_count(); ++i) carrier(i)->WakeIfIdle();
  while (true) {
    const uint32_t left = running_.load();
    if (left == 0) break;
    if (FutexWait(running_, left, deadline) == FutexResult::kTimedOut) {
      if (running_.load() != 0) return false;
      break;
    }
  }
  monitor_.Stop();
  return true;
}

void Scheduler::BecomeForkedChild() {
  stack_pool_.ResetInForkedChild();
  helpers_->ResetInForkedChild();
}

// --- Looking. ---

int64_t Scheduler::OwnCpuNanos() const {
  int64_t sum = 0;
  for (uint32_t i = 0; i < carrier_count(); ++i) {
    sum += carrier(i)->own_cpu_nanos();
  }
  return sum;
}

int64_t Scheduler::CarrierCpuNanos() const {
  int64_t sum = 0;
  for (uint32_t i = 0; i < carrier_count(); ++i) {
    sum += ReadCpuClock(CpuClockId(CpuClockOf::kThread, carrier(i)->tid(),
                                   CpuClock::kTotal))
               .value_or(0);
  }
  return sum;
}

bool Scheduler::HasSharedWork() const {
  if (global_.size_hint() != 0) return true;
  for (uint32_t i = 0; i < carrier_count(); ++i) {
    if (carrier(i)->has_shared_work()) return true;
  }
  return false;
}

bool Scheduler::HasSharedWorkInOrder() const {
  if (!global_.empty_in_order()) return true;
  for (uint32_t i = 0; i < carrier_count(); ++i) {
    if (carrier(i)->has_shared_work_in_order()) return true;
  }
  return false;
}

bool Scheduler::MaySpin() {
  // One at a time, and only where somebody else can run meanwhile.
  if (processors_ == 1) return false;
  uint32_t none = 0;
  return spinning_.compare_exchange_strong(none, 1);
}

void Scheduler::WakeOneSlow() {
  for (uint32_t i = 0; i < carrier_count(); ++i) {
    if (carrier(i)->WakeIfIdle()) return;
  }
}

bool Scheduler::HandOff(uint32_t stuck) {
  const uint32_t count = carrier_count();
  for (uint32_t i = 0; i < count; ++i) {
    if (carrier(i)->WakeIfIdle()) return true;
  }
  // As many as wanted are not stuck: they take it when they come to it.
  if (count >= wanted_carriers_ + stuck) return true;
  if (count >= wanted_carriers_ + options_.extra_carriers) return false;
  RankedMutexLock lock(start_lock_);
  return StartCarrier().ok();
}

}  // namespace stillpoint
