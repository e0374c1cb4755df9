#include "runtime/green/monitor.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/event_sink.h"
#include "runtime/base/thread_state.h"
#include "runtime/green/carrier.h"
#include "runtime/green/scheduler.h"
#include "runtime/green/timer_queue.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"
#include "runtime/thread/green_record.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"

namespace stillpoint {
namespace {

// So many ticks with nobody waiting, and it sleeps: more than a thread that
// waits now and then needs, so that it is not woken each time.
constexpr int kQuietTicks = 20;

}  // namespace

// What the OS thread keeps.
struct Monitor::Share {
  std::shared_ptr<Registry> registry;
  std::shared_ptr<Scheduler> scheduler;
};

Monitor::Monitor(Scheduler& scheduler) : scheduler_(scheduler) {}

absl::Status Monitor::Start(std::shared_ptr<Scheduler> scheduler) {
  // The registry has what Look and Report look at.
  std::shared_ptr<Registry> registry = scheduler->registry().shared_from_this();
  auto share =
      std::make_unique<Share>(Share{std::move(registry), std::move(scheduler)});
  OsThreadOptions options;
  options.block_signals = true;
  running_.store(1);
  absl::Status started = StartOsThread(options, &ThreadMain, share.get());
  if (!started.ok()) {
    running_.store(0);
    return started;
  }
  share.release();
  return started;
}

void* Monitor::ThreadMain(void* argument) {
  const std::unique_ptr<Share> share(static_cast<Share*>(argument));
  SetCurrentOsThreadName(
      absl::StrCat(share->scheduler->options().name, "-monitor"));
  Monitor& self = share->scheduler->monitor();
  self.Run();
  self.running_.store(0);
  FutexWake(self.running_, 1);
  return nullptr;
}

void Monitor::Wake() {
  if (sleep_.exchange(kAwake) != kAwake) FutexWake(sleep_, 1);
}

void Monitor::Stop() {
  ending_.store(true);
  sleep_.store(kEnding);
  FutexWake(sleep_, 1);
  while (running_.load() != 0) {
    FutexWait(running_, uint32_t{1}, Deadline::Infinite());
  }
}

void Monitor::Run() {
  int quiet = 0;
  while (!ending_.load()) {
    SleepATick();
    if (Look()) {
      quiet = 0;
      continue;
    }
    if (++quiet < kQuietTicks) continue;
    // From now on it is to be woken, for any timer, too. Whoever had looked
    // just before that is found a tick later.
    timer_.store(TimerQueue::kNever);
    sleep_.store(kAsleep);
    SleepATick();
    while (sleep_.load() == kAsleep && !ending_.load() && !Look()) {
      SleepUntilNoted();
    }
    sleep_.store(kAwake);
    quiet = 0;
  }
}

void Monitor::SleepUntilNoted() {
  int64_t timer = TimerQueue::kNever;
  for (uint32_t i = 0; i < scheduler_.carrier_count(); ++i) {
    timer =
        std::min(timer, scheduler_.carrier(i)->timers().earliest_in_order());
  }
  timer_.store(timer);
  // A slice later, so that those who switch, or are idle, have seen to it
  // themselves.
  const int64_t slice = scheduler_.options().time_slice.count();
  const int64_t until =
      timer < TimerQueue::kNever - slice ? timer + slice : TimerQueue::kNever;
  while (sleep_.load() == kAsleep && !ending_.load()) {
    if (FutexWait(sleep_, static_cast<uint32_t>(kAsleep),
                  Deadline::AtMonotonicNanos(until)) ==
        FutexResult::kTimedOut) {
      break;
    }
  }
  timer_.store(TimerQueue::kNever);
}

void Monitor::SleepATick() {
  const int64_t tick = std::min(scheduler_.options().time_slice.count(),
                                scheduler_.options().native_handoff.count());
  const uint32_t seen = sleep_.load();
  // Stop says first that it ends, then changes the word.
  if (ending_.load()) return;
  FutexWait(sleep_, seen, Deadline::AtMonotonicNanos(MonotonicNanos() + tick));
}

bool Monitor::Look() {
  bool anybody_waits = false;
  stuck_ = 0;
  const int64_t now = MonotonicNanos();
  const uint32_t count = scheduler_.carrier_count();
  for (uint32_t i = 0; i < count; ++i) {
    anybody_waits |= LookAt(*scheduler_.carrier(i), watches_[i], now);
  }
  return anybody_waits;
}

bool Monitor::LookAt(Carrier& carrier, Watch& watch, int64_t now) {
  bool bound = carrier.has_bound_work();
  bool shared = scheduler_.HasSharedWork();
  const bool timers = carrier.timers().earliest() <= now;
  if (!bound && !shared && !timers) {
    watch.switches = 0;
    return false;
  }
  const uint64_t switches = carrier.switches() + 1;  // never 0
  if (switches != watch.switches) {
    watch = Watch{switches, now, now, false};
    return true;
  }
  // acquire (M81): its state word is that of a green thread.
  Thread* mounted = carrier.line().mounted().load(std::memory_order_acquire);
  if (mounted == nullptr) return !carrier.is_idle();
  const int64_t stuck = now - watch.since;
  if (now - watch.sliced_at >= scheduler_.options().time_slice.count()) {
    watch.sliced_at = now;
    // relaxed (M86): a request, with nothing to be seen besides. If another
    // thread is mounted by now, that one yields.
    mounted->poll_word().fetch_or(kPollYield, std::memory_order_relaxed);
    carrier.LookAround();
  }
  if (!IsSafe(mounted->state())) return true;
  bool handed_off = true;
  if (stuck >= scheduler_.options().native_handoff.count()) {
    ++stuck_;
    if (bound && scheduler_.migrates()) {
      carrier.GiveAway();
      bound = false;
      shared = true;
    }
    handed_off = !shared || scheduler_.HandOff(stuck_);
  }
  if ((bound || !handed_off) && stuck >= kReportNanos && !watch.reported) {
    watch.reported = true;
    Report(carrier, stuck);
  }
  return true;
}

void Monitor::Report(Carrier& carrier, int64_t nanos) {
  EventSink* const sink = scheduler_.options().sink;
  if (sink == nullptr) return;
  constexpr int kMaxNames = 8;
  std::string running;
  std::string waiting;
  int count = 0;
  Registry& registry = scheduler_.registry();
  registry.green_slots().ForEachSlot([&](Thread& thread) {
    if (!IsMember(thread.state())) return;
    GreenRecord& record = GreenRecordOf(thread);
    // relaxed (M86): a number.
    if (record.account.home.load(std::memory_order_relaxed) !=
        carrier.index() + 1) {
      return;
    }
    const uint64_t generation = record.generation.load();
    const bool lives = (generation & 1) != 0;
    if (!lives || !registry.Pin(thread, generation)) return;
    // acquire (M80): as in ReadGreenCpuTimes.
    if (record.account.mounted_at.load(std::memory_order_acquire) >= 0) {
      running = record.name;
    } else if (!record.wait.HasBlockedSleeper()) {
      if (++count <= kMaxNames) {
        absl::StrAppend(&waiting, count == 1 ? "" : ", ", record.name);
      }
    }
    registry.Unpin(thread);
  });
  if (count == 0) {
    sink->OnMessage(
        Severity::kWarning,
        absl::StrCat("every carrier is held up in native code, one of them by "
                     "green thread ",
                     running, " for ", nanos / 1'000'000,
                     " ms, and new green threads wait: raise the option "
                     "extra_carriers, or run what blocks in BlockingCall()"));
    return;
  }
  if (count > kMaxNames) {
    absl::StrAppend(&waiting, " and ", count - kMaxNames, " more");
  }
  sink->OnMessage(
      Severity::kWarning,
      absl::StrCat(
          "green thread ", running, " has been in native code for ",
          nanos / 1'000'000, " ms on carrier ", carrier.index(),
          "; these are ready, were started there and wait behind it: ", waiting,
          ". Run what blocks in BlockingCall(), which keeps the "
          "carrier free"));
}

}  // namespace stillpoint
