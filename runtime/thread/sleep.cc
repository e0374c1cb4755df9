#include "runtime/thread/sleep.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/absl_string.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/base/spin_tail.h"
#include "runtime/base/tls_block.h"
#include "runtime/os/timer_slack.h"
#include "runtime/thread/interrupt.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/wait_check.h"
#include "runtime/thread/wait_word.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {
namespace {

static_assert(kMaxSleepSpin == std::chrono::nanoseconds(SpinTail::kMaxNanos));

bool Interrupted(const WaitWord& word) {
  return (word.Peek() & WaitWord::kInterrupt) != 0;
}

// The ways to wait; each returns whether an interrupt ended it. All in a
// safe state.

bool SleepInKernel(WaitWord& word, Deadline deadline) {
  return word.Wait(WaitWord::kInterrupt, deadline) != 0;
}

// Less than the kernel needs to put a thread to sleep and to wake it up again,
// and about the processor time that this costs.
constexpr int64_t kShortNanos = 5'000;

// Whether the kernel could not but be later than the thread has asked for. Not
// on a real-time thread: it shares its processor only when it sleeps.
bool KernelIsTooSlow(int64_t nanos_left) {
  if (nanos_left >= kShortNanos) return false;
  const std::optional<uint64_t> slack = ReadTimerSlack();
  return slack.has_value() && *slack > 0 && *slack < kShortNanos &&
         TimerSlackApplies();
}

// Lets others have the processor, but does not sleep.
bool YieldUntil(const WaitWord& word, int64_t nanos) {
  while (!Interrupted(word)) {
    if (MonotonicNanos() >= nanos) return false;
    sched_yield();
  }
  return true;
}

// Brings near what the way back to Managed reads: after a long sleep it is in
// no cache and no TLB, which would make the thread two microseconds late.
void WarmTheWayBack() {
  const Thread* current = Thread::Current();
  if (current == nullptr) return;
  // relaxed (M50): the value is not used; EnterManaged reads it again.
  (void)current->control().stop_word.load(std::memory_order_relaxed);
}

bool SpinUntil(const WaitWord& word, int64_t nanos) {
  while (!Interrupted(word)) {
    if (MonotonicNanos() >= nanos) return false;
    CpuRelax();
  }
  return true;
}

// The least slack for the calling thread, where it has more and the kernel lets
// it have less.
class ExactTimers {
 public:
  // In a green thread it does nothing: the carrier is not its own, and may be
  // another one afterwards.
  ExactTimers()
      : before_(tls_block.blocker == nullptr ? ReadTimerSlack()
                                             : std::nullopt) {
    changed_ = before_.value_or(0) > 1 && WriteTimerSlack(1);
  }
  ~ExactTimers() {
    if (changed_) (void)WriteTimerSlack(*before_);
  }
  ExactTimers(const ExactTimers&) = delete;
  ExactTimers& operator=(const ExactTimers&) = delete;

 private:
  const std::optional<uint64_t> before_;
  bool changed_ = false;
};

// Not inlined: each time it is that of the OS thread that runs this now.
[[gnu::noinline]] SpinTail& TailFor(int64_t nanos) {
  return tls_block.spin_tails.For(nanos);
}

bool SleepExactly(WaitWord& word, int64_t nanos) {
  const int64_t now = MonotonicNanos();
  const int64_t wake_at = nanos - TailFor(nanos - now).nanos();
  if (wake_at > now) {
    const ExactTimers exact;
    if (SleepInKernel(word, Deadline::AtMonotonicNanos(wake_at))) return true;
    TailFor(nanos - now).Learn(MonotonicNanos() - wake_at);
  }
  WarmTheWayBack();
  return SpinUntil(word, nanos);
}

// What Sleep and SleepPrecise have in common: all but the wait itself.
template <typename Wait>
absl::Status SleepUntil(std::string_view what, Deadline deadline, Wait wait) {
  if (absl::Status allowed = CheckMayWait(what); !allowed.ok()) {
    return allowed;
  }
  Thread* current = Thread::Current();
  if (current == nullptr && deadline.infinite()) {
    return absl::FailedPreconditionError(absl::StrCat(
        ToAbsl(what),
        " without an end on a thread that is not attached, where no interrupt "
        "can end it: call Runtime::AttachCurrentThread first, or give it a "
        "deadline"));
  }
  WaitWord nobodys;  // to which nobody writes
  WaitWord& word = current != nullptr ? current->record().wait : nobodys;
  const WaitScope waiting(current, WaitingFor(WaitKind::kTime));
  // Not into the kernel for a deadline that has passed: its timer may fire as
  // late as the slack says even then.
  const bool interrupted =
      deadline.passed() ? Interrupted(word) : wait(word, deadline);
  if (!interrupted) return absl::OkStatus();
  word.Take(WaitWord::kInterrupt);
  return InterruptedError(what);
}

}  // namespace

absl::Status Sleep(Deadline deadline) {
  return SleepUntil("Sleep", deadline, [](WaitWord& word, Deadline until) {
    const int64_t nanos = until.monotonic_nanos();
    return KernelIsTooSlow(nanos - MonotonicNanos())
               ? YieldUntil(word, nanos)
               : SleepInKernel(word, until);
  });
}

absl::Status SleepPrecise(Deadline deadline) {
  return SleepUntil(
      "SleepPrecise", deadline, [](WaitWord& word, Deadline until) {
        return until.infinite() ? SleepInKernel(word, until)
                                : SleepExactly(word, until.monotonic_nanos());
      });
}

}  // namespace stillpoint
