#include "runtime/safepoint/stop_protocol.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/base/thread_state.h"
#include "runtime/os/futex.h"
#include "runtime/safepoint/wait_bounds.h"
#include "runtime/safepoint/watchdog.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/threads_lock.h"

namespace stillpoint {
namespace {

template <size_t kCapacity>
void CopyName(std::string_view name, char (&to)[kCapacity]) {
  const size_t n = std::min(name.size(), kCapacity - 1);
  std::memcpy(to, name.data(), n);
  to[n] = '\0';
}

}  // namespace

StopProtocol::StopProtocol(Registry& registry, const Watchdog& watchdog,
                           const std::atomic<bool>& abandon)
    : registry_(registry), watchdog_(watchdog), abandon_(abandon) {}

bool StopProtocol::Begin(SafepointRecord& record) noexcept {
  record.sequence = ++sequence_;
  record.begin = MonotonicNanos();
  record.since_last = last_end_ == 0 ? 0 : record.begin - last_end_;

  late_.clear();
  LockThreads(record.operation);
  stopped_from_ = MonotonicNanos();
  record.lock_wait = stopped_from_ - record.begin;

  WriteStopWord();
  Scan();
  record.threads_total = static_cast<uint32_t>(world_.members_.size());
  record.threads_runnable = static_cast<uint32_t>(stragglers_.size());
  record.arming = MonotonicNanos() - stopped_from_;

  if (!SpinForStragglers() && !SleepForStragglers(record.operation)) {
    Resume();
    last_end_ = MonotonicNanos();
    return false;
  }
  world_.stopped_ = true;
  if (last_ != nullptr) {
    CopyName(last_->name(), record.last_thread);
    record.last_thread_delay = last_at_ - stopped_from_;
  }
  operations_from_ = MonotonicNanos();
  record.reaching = operations_from_ - stopped_from_;
  return true;
}

void StopProtocol::End(SafepointRecord& record) {
  const int64_t leaving_from = MonotonicNanos();
  record.at_safepoint = leaving_from - operations_from_;
  Resume();
  last_end_ = MonotonicNanos();
  record.leaving = last_end_ - leaving_from;
  record.total = last_end_ - record.begin;
}

void StopProtocol::LockThreads(std::string_view operation) {
  ThreadsLock& lock = registry_.threads_lock();
  if (!watchdog_.on()) {
    lock.LockForStop();
    return;
  }
  const auto until = [](int64_t nanos) {
    return Deadline::AtMonotonicNanos(MonotonicNanos() + nanos);
  };
  if (lock.TryLockForStop(until(kLateCheckNanos))) return;
  // What it has waited by now counts.
  const int64_t begin = watchdog_.Now() - kLateCheckNanos;
  while (!lock.TryLockForStop(until(kLateCheckNanos))) {
    if (watchdog_.Now() - begin < watchdog_.options().timeout_nanos) continue;
    if (late_.empty()) {
      late_ = watchdog_.WarnOfLock(operation, begin, lock.holder());
    }
    watchdog_.DieIfOverdue("a wait for Threads_lock", begin);
  }
}

void StopProtocol::WriteStopWord() {
  StopControl& control = registry_.control();
  // release (M9, M11): begins what an entering thread that reads an odd value
  // waits for, and closes. relaxed load: only the stopper writes the word,
  // under Stopper_lock.
  control.stop_word.store(control.stop_word.load(std::memory_order_relaxed) + 1,
                          std::memory_order_release);
  // The stopper's half of the pairs with *entering* (M1) and with exits (M3):
  // without it the scan could read a safe state while the stop word still sits
  // in the store buffer.
  control.OrderAll();
}

void StopProtocol::Scan() {
  world_.members_.clear();
  world_.green_slots_ = &registry_.green_slots();
  stragglers_.clear();
  last_ = nullptr;
  last_at_ = 0;
  registry_.slots().ForEachSlot([this](Thread& thread) {
    // acquire (in state(); M7): what a safe thread wrote before it became safe
    // is seen by the operations.
    const ThreadState state = thread.state();
    if (state == ThreadState::kCarrier) {
      // acquire (M81): the mounted thread is one that lives. Whichever is seen:
      // one that is mounted later finds the odd stop word on its way in.
      Thread* mounted = thread.mounted().load(std::memory_order_acquire);
      if (mounted != nullptr && !IsSafe(mounted->state())) Arm(*mounted);
      return;
    }
    if (!IsMember(state)) return;
    world_.members_.push_back(&thread);
    if (!IsSafe(state)) Arm(thread);
  });
}

void StopProtocol::Arm(Thread& thread) {
  // By fetch_or: other bits stay. release (M10): the owner that finds the bit
  // in its exchange sees the odd stop word. For polls it is a hint (M25).
  thread.poll_word().fetch_or(kPollSafepoint, std::memory_order_release);
  stragglers_.push_back({&thread});
}

void StopProtocol::NoteIfSafe(Straggler& straggler, int64_t now) {
  if (!IsSafe(straggler.thread->state())) return;
  straggler.safe = true;
  // Its own stamp if it stopped at a poll in this stop; who left Managed by a
  // scope does not read the clock, so `now` has to do. relaxed (M27).
  const int64_t stamp =
      straggler.thread->record().arrived_at.load(std::memory_order_relaxed);
  const int64_t arrived = stamp >= stopped_from_ ? stamp : now;
  if (last_ == nullptr || arrived > last_at_) {
    last_ = straggler.thread;
    last_at_ = arrived;
  }
}

bool StopProtocol::SpinForStragglers() {
  // With this thread on one processor, one of so many waits for a processor,
  // and is the sooner safe the sooner it gets this one.
  const bool is_in_the_way =
      stragglers_.size() >= static_cast<size_t>(registry_.control().processors);
  const int64_t give_up = stopped_from_ + kSpinNanos;
  while (true) {
    bool all_safe = true;
    const int64_t now = MonotonicNanos();
    for (Straggler& straggler : stragglers_) {
      if (!straggler.safe) NoteIfSafe(straggler, now);
      all_safe &= straggler.safe;
    }
    if (all_safe) return true;
    if (is_in_the_way || now >= give_up) return false;
    CpuRelax();
  }
}

bool StopProtocol::SleepForStragglers(std::string_view operation) {
  LateWatch watch(watchdog_, "Safepoint", operation);
  const StopControl& control = registry_.control();
  for (Straggler& straggler : stragglers_) {
    if (straggler.safe) continue;
    // release (M10): as in Scan; the order against *leaving* follows (M2).
    straggler.thread->poll_word().fetch_or(kPollWaited,
                                           std::memory_order_release);
  }
  // Once that is ordered against leaving, a thread that leaves sees the bit, or
  // the kernel's compare below sees its safe state. Where it takes a membarrier
  // the stopper sleeps without for a moment first, since that interrupts those
  // it waits for. A thread whose safe state takes longer to leave its store
  // buffer than the kernel to come to its compare costs the rest of that
  // moment.
  bool ordered = false;
  int64_t now = MonotonicNanos();
  const int64_t order_at =
      control.fence.leave_fenced ? now : now + kUnorderedNanos;
  for (Straggler& straggler : stragglers_) {
    while (!straggler.safe) {
      now = MonotonicNanos();
      if (!ordered && now >= order_at) {
        control.OrderAllBeforeSleep();
        ordered = true;
      }
      NoteIfSafe(straggler, now);
      if (straggler.safe) break;
      // acquire (M22): pairs with the store in VmThread; nothing else hangs on
      // it.
      if (abandon_.load(std::memory_order_acquire)) return false;
      // seq_cst, before the kernel's look at the state: against WakeWaiterOf
      // (M2).
      straggler.thread->record().state_sleepers.fetch_add(1);
      FutexWait(straggler.thread->state_word(), ThreadState::kManaged,
                Deadline::AtMonotonicNanos(ordered ? now + kLateCheckNanos
                                                   : order_at));
      straggler.thread->record().state_sleepers.fetch_sub(1);
      // Who is late by one whole sleep is late. This says so, and nobody else
      // has to wake up for it.
      if (ordered && MonotonicNanos() - now >= kLateCheckNanos) {
        LookForLate(watch);
      }
    }
  }
  late_ = watch.reason();
  return true;
}

void StopProtocol::LookForLate(LateWatch& watch) {
  std::vector<Thread*> late;
  for (const Straggler& straggler : stragglers_) {
    if (!straggler.safe && !IsSafe(straggler.thread->state())) {
      late.push_back(straggler.thread);
    }
  }
  watch.Look(late);
}

void StopProtocol::Resume() {
  StopControl& control = registry_.control();
  world_.stopped_ = false;
  world_.members_.clear();
  // release (M9): pairs with the acquire in TryEnterManaged and
  // WaitWhileStopOn, so that mutators see what the operations wrote. relaxed
  // load: as in WriteStopWord.
  control.stop_word.store(control.stop_word.load(std::memory_order_relaxed) + 1,
                          std::memory_order_release);
  registry_.threads_lock().UnlockAfterStop();
  // The sleepers wake each other (SleepForStop): each woken thread may take
  // this one's processor, and the stopper is needed for the next stop.
  FutexWake(control.stop_word, 1);
}

void StopProtocol::CloseForEver() {
  StopControl& control = registry_.control();
  // release (M11): who reads the odd stop word below sees it too.
  control.closed.store(true, std::memory_order_release);
  WriteStopWord();
  Scan();  // arms those in Managed
  // Exits that wait for the end of a stop look at `closed`.
  FutexWake(control.stop_word, INT32_MAX);
}

}  // namespace stillpoint
