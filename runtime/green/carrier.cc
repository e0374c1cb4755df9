#include "runtime/green/carrier.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/base/thread_state.h"
#include "runtime/base/tls_block.h"
#include "runtime/green/accounting.h"
#include "runtime/green/context.h"
#include "runtime/green/scheduler.h"
#include "runtime/os/fast_cpu_clock.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"
#include "runtime/thread/green_cpu_times.h"
#include "runtime/thread/green_record.h"
#include "runtime/thread/native_record.h"
#include "runtime/thread/registry.h"

namespace stillpoint {
namespace {

// How many turns in a row go to threads that those before have made ready,
// while others wait.
constexpr uint32_t kMaxStreak = 16;

// So often it looks for threads that belong nowhere yet, though it has others,
// and at its timers.
constexpr uint32_t kGlobalTurns = 64;
constexpr uint32_t kTimerTurns = 16;

// Before it sleeps: less than it takes to be woken from there.
constexpr int64_t kIdleSpinNanos = 20'000;

}  // namespace

Carrier::Carrier(Scheduler& scheduler, Thread& line, uint32_t index)
    : scheduler_(scheduler),
      line_(line),
      index_(index),
      stacks_(scheduler.stack_pool()),
      share_(scheduler.registry().NewCarrierShare()),
      steal_seed_(index) {}

Carrier* Carrier::Current() {
  if (GreenThread* thread = GreenThread::Current()) return thread->home;
  return nullptr;
}

void Carrier::Run() {
  tid_ = CurrentTid();
  context_.AdoptThread();
  loop_since_ = ReadClocks().cpu_nanos;
  bool was_idle = false;
  while (true) {
    GreenThread* next = PickHere();
    if (next == nullptr) next = PickAnywhere();
    if (next != nullptr) {
      // As long as this one was looking, or was woken, nobody else was.
      if (std::exchange(was_idle, false)) {
        scheduler_.WakeAnother();
        NoteTimers();
      }
      const Now now = ReadClocks();
      // relaxed (M86): only this thread writes it.
      own_nanos_.store(own_nanos_.load(std::memory_order_relaxed) +
                           now.cpu_nanos - loop_since_,
                       std::memory_order_relaxed);
      Mount(*next, now);
      Context::Switch(context_, next->context);
      FinishSwitch();
      continue;
    }
    if (scheduler_.ending()) break;
    WaitForWork();
    was_idle = true;
  }
  stacks_.Flush();
  scheduler_.registry().CloseCarrierShare(share_);
}

void Carrier::Park(GreenThread& self, WaitWord& word, uint32_t mask,
                   Deadline deadline) {
  farewell_ = {Farewell::kAnnounce, &self, &word, mask, deadline};
  Leave(self, PickHere());
}

void Carrier::Yield(GreenThread& self) {
  GreenThread* next = PickHere();
  if (next == nullptr) next = PickAnywhere();
  if (next == nullptr) return;
  farewell_ = {Farewell::kRequeue, &self};
  Leave(self, next);
}

// Afterwards another OS thread may be running `self`, and this function may not
// look at anything that is thread-local: `home` says where it is.
void Carrier::Leave(GreenThread& self, GreenThread* next) {
  const Now now = ReadClocks();
  Unmount(self, now);
  if (next != nullptr) {
    Mount(*next, now);
    Context::Switch(self.context, next->context);
  } else {
    MountNone(now);
    Context::Switch(self.context, context_);
  }
  self.home->FinishSwitch();
}

void Carrier::Exit(GreenThread& self) {
  const Now now = ReadClocks();
  Unmount(self, now);
  if (kGreenCpuTimes) EndGreenAccount(self.line, now.ticks);
  MountNone(now);
  // Still on its stack, so that who waits for its end may be the next; but the
  // slot, and with it `self.line`, may have another thread from here on.
  tls_block.blocker = &self;
  exit_ticks_ = now.ticks;
  scheduler_.registry().RetireGreen(self.line, share_);
  exit_ticks_ = 0;
  GreenThread* next = PickHere();
  tls_block.blocker = nullptr;
  farewell_ = {Farewell::kFreeStack, &self};
  if (next != nullptr) {
    // What the end has cost is its successor's.
    Mount(*next, now);
    Context::SwitchFinally(self.context, next->context);
  }
  Context::SwitchFinally(self.context, context_);
}

Carrier::Now Carrier::ReadClocks() {
  Now now;
  if (kGreenCpuTimes) {
    now.cpu_nanos = line_.cpu_clock().ReadWithTicks(now.ticks);
    // The clock may count without the counter.
    if (line_.control().ticks_multiplier == 0) {
      now.ticks = GreenTicks(line_.control());
    }
  }
  return now;
}

void Carrier::Unmount(GreenThread& self, const Now& now) {
  // relaxed (M86): only this thread writes it.
  switches_.store(switches_.load(std::memory_order_relaxed) + 1,
                  std::memory_order_relaxed);
  if (kGreenCpuTimes) {
    ChargeUnmount(self.line, now.cpu_nanos);
    self.ready_since = now.ticks;
  }
  // relaxed (M28): see Thread::tid().
  self.line.record().tid.store(0, std::memory_order_relaxed);
}

void Carrier::MountNone(const Now& now) {
  loop_since_ = now.cpu_nanos;
  // release (M81): with it the thread's safe state, which came before.
  line_.mounted().store(nullptr, std::memory_order_release);
  tls_block.current = &line_;
  tls_block.state = &line_.state_word();
  tls_block.blocker = nullptr;
}

void Carrier::Mount(GreenThread& next, const Now& now) {
  Thread& thread = next.line;
  if (next.home != this) {
    next.home = this;
    // relaxed (M86): a number, for reports.
    GreenRecordOf(thread).account.home.store(index_ + 1,
                                             std::memory_order_relaxed);
  }
  int64_t offset = 0;
  if (kGreenCpuTimes) {
    offset = ChargeMount(thread, now.cpu_nanos, now.ticks - next.ready_since);
  }
  thread.set_cpu_clock(line_.cpu_clock(), offset);
  // release (M80): after the account's base, which is of this carrier's clock;
  // who finds the one finds the other, or looks again.
  thread.record().tid.store(tid_, std::memory_order_release);
  // release (M81): its line and record are filled. Before it stores Managed and
  // reads the stop word, in its own time.
  line_.mounted().store(&thread, std::memory_order_release);
  tls_block.current = &thread;
  tls_block.state = &thread.state_word();
  tls_block.blocker = &next;
}

bool Carrier::Announce(const Farewell& farewell) {
  if (farewell.deadline.infinite()) {
    return farewell.word->Announce(*farewell.thread, farewell.mask);
  }
  return timers_.Announce(farewell.thread->timer,
                          farewell.deadline.monotonic_nanos(), *farewell.thread,
                          *farewell.word, farewell.mask);
}

void Carrier::FinishSwitch() {
  const Farewell farewell = farewell_;
  farewell_.kind = Farewell::kNone;
  switch (farewell.kind) {
    case Farewell::kNone:
      break;
    case Farewell::kRequeue:
      PushBound(*farewell.thread);
      break;
    case Farewell::kAnnounce:
      if (!Announce(farewell)) ReadyNext(*farewell.thread);
      break;
    case Farewell::kFreeStack: {
      Stack& stack = farewell.thread->stack;
      farewell.thread->~GreenThread();
      stacks_.Put(&stack);
      break;
    }
  }
}

// --- Making ready. ---

void Carrier::PushBound(GreenThread& thread) {
  if (scheduler_.migrates()) {
    ReadyAnywhere(thread);
    return;
  }
  bound_list_.PushBack(thread);
  NoteBound();
  scheduler_.NoteWaiting();
}

void Carrier::NoteBound() {
  // relaxed (M86): only this thread writes it.
  bound_.store(static_cast<uint32_t>(bound_list_.size()),
               std::memory_order_relaxed);
}

void Carrier::ReadyNext(GreenThread& thread) {
  if (kGreenCpuTimes) {
    thread.ready_since =
        exit_ticks_ != 0 ? exit_ticks_ : GreenTicks(line_.control());
  }
  if (GreenThread* const before = TakeNext()) PushBound(*before);
  // release (M89): the thread, for the monitor.
  run_next_.store(&thread, std::memory_order_release);
  scheduler_.NoteWaiting();
}

void Carrier::ReadyAnywhere(GreenThread& thread) {
  if (kGreenCpuTimes) thread.ready_since = GreenTicks(line_.control());
  PushAnywhere(thread);
}

void Carrier::PushAnywhere(GreenThread& thread) {
  if (!ring_.Push(thread)) scheduler_.global().Push(thread);
  scheduler_.NoteWaiting();
  scheduler_.WakeOne();
}

bool Carrier::takes_over(const Carrier& other) const {
  return &scheduler_ == &other.scheduler_ && scheduler_.migrates();
}

void Carrier::ReadyFromOutside(GreenThread& thread) {
  if (kGreenCpuTimes) thread.ready_since = GreenTicks(line_.control());
  if (scheduler_.migrates()) {
    // This carrier may be busy, or stuck, while another one is idle.
    scheduler_.global().Push(thread);
    scheduler_.NoteWaiting();
    scheduler_.WakeOne();
    return;
  }
  inbox_.Push(thread);
  if (!WakeIfIdle()) scheduler_.NoteWaiting();
}

void GreenThread::MakeReady() {
  Carrier* const here = Carrier::Current();
  if (here == home) {
    home->ReadyNext(*this);
  } else if (here != nullptr && here->takes_over(*home)) {
    here->ReadyAnywhere(*this);
  } else {
    home->ReadyFromOutside(*this);
  }
}

void GreenThread::Block(WaitWord& word, uint32_t mask, Deadline deadline) {
  // The carrier on which the deadline is added; afterwards it may be another.
  Carrier& carrier = *home;
  carrier.Park(*this, word, mask, deadline);
  if (!deadline.infinite()) carrier.timers().Remove(timer);
}

// --- Choosing. ---

GreenThread* Carrier::TakeNext() {
  // relaxed (M89): a glance; nobody else puts one in.
  GreenThread* const next = run_next_.load(std::memory_order_relaxed);
  if (next == nullptr) return nullptr;
  // acquire (M89): no need of it, this thread has put it in; but only one of
  // two may take it.
  if (scheduler_.migrates()) {
    return run_next_.exchange(nullptr, std::memory_order_acquire);
  }
  // relaxed (M89): nobody else takes it.
  run_next_.store(nullptr, std::memory_order_relaxed);
  return next;
}

void Carrier::GiveAway() {
  // acquire (M89): the thread, as who has made it ready left it.
  if (GreenThread* const next =
          run_next_.exchange(nullptr, std::memory_order_acquire)) {
    scheduler_.global().Push(*next);
  }
}

void Carrier::DrainInbox() {
  inbox_.Drain([this](GreenThread& thread) { PushBound(thread); });
}

// What runs next may run for long.
void Carrier::NoteTimers() {
  const int64_t earliest = timers_.earliest();
  if (earliest != TimerQueue::kNever) scheduler_.monitor().NoteTimer(earliest);
}

void Carrier::FireTimers() {
  const int64_t earliest = timers_.earliest();
  if (earliest == TimerQueue::kNever) return;
  const int64_t now = MonotonicNanos();
  if (earliest > now) return;
  while (GreenThread* due = timers_.PopDue(now)) {
    if (kGreenCpuTimes) due->ready_since = GreenTicks(line_.control());
    PushBound(*due);
  }
}

GreenThread* Carrier::PickHere() {
  ++turns_;
  if (!inbox_.looks_empty()) DrainInbox();
  // relaxed (M86): a request.
  if (look_around_.load(std::memory_order_relaxed)) [[unlikely]] {
    look_around_.store(false, std::memory_order_relaxed);
    FireTimers();
    if (GreenThread* thread = TakeGlobal()) PushAnywhere(*thread);
  }
  if (turns_ % kTimerTurns == 0) FireTimers();
  if (turns_ % kGlobalTurns == 0) {
    if (GreenThread* thread = TakeGlobal()) return thread;
  }
  const bool others = !bound_list_.empty() || ring_.size_hint() != 0;
  if (GreenThread* const next = TakeNext()) {
    if (!others || run_next_streak_ < kMaxStreak) {
      ++run_next_streak_;
      return next;
    }
    PushBound(*next);
  }
  run_next_streak_ = 0;
  // Those that have run and those that have not take turns. (By a bit of their
  // own: every other turn may be one of those above.)
  ring_is_first_ = !ring_is_first_;
  if (ring_is_first_) {
    if (GreenThread* thread = ring_.Pop()) return thread;
  }
  if (GreenThread* thread = bound_list_.PopFront()) {
    NoteBound();
    return thread;
  }
  return ring_.Pop();
}

GreenThread* Carrier::PickAnywhere() {
  FireTimers();
  if (GreenThread* thread = TakeGlobal()) return thread;
  if (GreenThread* thread = StealFromOthers()) return thread;
  // What the timers have made ready.
  if (GreenThread* thread = bound_list_.PopFront()) {
    NoteBound();
    return thread;
  }
  return ring_.Pop();
}

GreenThread* Carrier::TakeGlobal() {
  if (scheduler_.global().size_hint() == 0) return nullptr;
  // A share, so that the others find some, too; the rest of it to the ring,
  // which has room for half of what it holds.
  const size_t share =
      scheduler_.global().size_hint() / (scheduler_.carrier_count() + 1) + 1;
  const size_t room = SharedRing::kCapacity / 2;
  GreenThread* first = nullptr;
  scheduler_.global().Take(std::min(share, room), [&](GreenThread& thread) {
    if (first == nullptr) {
      first = &thread;
    } else if (!ring_.Push(thread)) {
      scheduler_.global().Push(thread);
    }
  });
  return first;
}

GreenThread* Carrier::StealFromOthers() {
  const uint32_t count = scheduler_.carrier_count();
  if (count == 0) return nullptr;  // this one is just being started
  // Not always the same one first.
  steal_seed_ = steal_seed_ * 1664525 + 1013904223;  // Numerical Recipes
  const uint32_t start = (steal_seed_ >> 16) % count;
  for (uint32_t i = 0; i < count; ++i) {
    Carrier* victim = scheduler_.carrier((start + i) % count);
    if (victim == nullptr || victim == this) continue;
    GreenThread* const first = victim->Steal();
    if (first == nullptr) continue;
    // And half of what is left, for the next turns.
    for (uint32_t more = victim->ring_.size_hint() / 2; more > 0; --more) {
      GreenThread* const thread = victim->Steal();
      if (thread == nullptr) break;
      if (!ring_.Push(*thread)) {
        scheduler_.global().Push(*thread);
        break;
      }
    }
    return first;
  }
  return nullptr;
}

// --- Waiting. ---

bool Carrier::WakeIfIdle() {
  // seq_cst (M84): what was left before is seen by a carrier that then says
  // that it is idle, or it is seen to be idle here. A load first: most are not.
  if (idle_.load() == kBusy) return false;
  if (idle_.exchange(kBusy) == kBusy) return false;
  FutexWake(idle_, 1);
  return true;
}

bool Carrier::MustWait() {
  return inbox_.empty_in_order() && ring_.empty_in_order() &&
         !scheduler_.HasSharedWorkInOrder() && !scheduler_.ending();
}

bool Carrier::SpinForWork() {
  if (!scheduler_.MaySpin()) return false;
  const int64_t give_up = MonotonicNanos() + kIdleSpinNanos;
  bool found = false;
  do {
    for (int i = 0; i < 16 && !found; ++i) {
      CpuRelax();
      found = !inbox_.looks_empty();
    }
    found = found || scheduler_.HasSharedWork() || scheduler_.ending() ||
            timers_.earliest() <= MonotonicNanos();
  } while (!found && MonotonicNanos() < give_up);
  scheduler_.StopSpinning();
  return found;
}

void Carrier::WaitForWork() {
  if (SpinForWork()) return;
  // seq_cst (M84): first said, then looked.
  idle_.store(kIdle);
  scheduler_.NoteIdle(+1);
  if (MustWait()) {
    // It waits where its clock may not be told.
    line_.cpu_clock().DropBase();
    const int64_t until = timers_.earliest();
    while (idle_.load() == kIdle) {
      if (FutexWait(idle_, static_cast<uint32_t>(kIdle),
                    Deadline::AtMonotonicNanos(until)) ==
          FutexResult::kTimedOut) {
        break;
      }
    }
  }
  idle_.store(kBusy);
  scheduler_.NoteIdle(-1);
}

}  // namespace stillpoint
