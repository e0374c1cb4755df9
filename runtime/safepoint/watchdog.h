// The watchdog: who waits too long for threads says so itself, and why. It has
// no thread and no timer of its own, so it costs nothing while nobody is late.
// docs/diagnostics.md has reports and how to read them.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_WATCHDOG_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_WATCHDOG_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "runtime/base/event_sink.h"
#include "runtime/os/thread_probe.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/threads_lock.h"

namespace stillpoint {

// What the watchdog looks with. For tests; the calls come from waiting threads.
class WatchdogHooks {
 public:
  virtual ~WatchdogHooks() = default;
  virtual int64_t Now();
  virtual ThreadProbe Probe(pid_t tid);
};

struct WatchdogOptions {
  int64_t timeout_nanos = 0;  // 0: off
  int64_t abort_nanos = 0;    // after the warning; 0: never
  int backtrace_signal = 0;   // 0: no backtraces
  EventSink* sink = nullptr;
  WatchdogHooks* hooks = nullptr;  // null: the clock and the kernel
};

// Why a thread is late, as far as the kernel can tell.
enum class LateVerdict {
  kRunsWithoutPolling,
  kNotScheduled,  // wanted the processor and did not get it
  kInKernel,      // in a page fault or a system call, in Managed
  kArrived,       // while it was looked at
  kUnknown,
};

// From two looks at a thread that was in Managed throughout, `nanos` apart.
LateVerdict JudgeLateThread(const ThreadProbe& before, const ThreadProbe& now,
                            int64_t nanos);

// Thread-safe; shared by all who wait in one runtime.
class Watchdog {
 public:
  explicit Watchdog(const WatchdogOptions& options);

  bool on() const { return options_.timeout_nanos != 0; }
  const WatchdogOptions& options() const { return options_; }
  int64_t Now() const { return hooks_.Now(); }
  ThreadProbe Probe(pid_t tid) const { return hooks_.Probe(tid); }

  // Tells the sink.
  void Warn(std::string_view report) const;

  // A stop has waited for Threads_lock since `begin` (Now()). Returns what it
  // has told.
  std::string WarnOfLock(std::string_view operation, int64_t begin,
                         const ThreadsLockHolder& holder) const;
  // Dies if it is to, and the grace period is over.
  void DieIfOverdue(std::string_view what, int64_t begin) const;

 private:
  const WatchdogOptions options_;
  WatchdogHooks default_hooks_;
  WatchdogHooks& hooks_;
};

// One wait for threads; lives with the waiter. What it keeps is allocated when
// somebody is late, not before.
class LateWatch {
 public:
  // `what` is what waits, as it begins a sentence, such as `Safepoint "gc"`.
  LateWatch(const Watchdog& watchdog, std::string_view kind,
            std::string_view name);
  LateWatch(const LateWatch&) = delete;
  LateWatch& operator=(const LateWatch&) = delete;

  // The waiter, each time that a sleep of its has ended in vain: `late` are
  // those that it still waits for; they stay valid for the length of the wait.
  // Warns once; ends the process if that was asked for.
  void Look(absl::Span<Thread* const> late);

  // Why the first of those in the warning was late; empty if there was none.
  const std::string& reason() const { return reason_; }

 private:
  struct Before {
    Thread* thread;
    ThreadProbe probe;
  };

  std::string Describe(Thread& thread, int64_t now);
  const Before* BeforeOf(const Thread& thread) const;

  const Watchdog& watchdog_;
  const std::string_view kind_;
  const std::string_view name_;
  const int64_t begin_;
  int64_t looked_at_ = 0;
  bool warned_ = false;
  std::vector<Before> before_;
  std::string reason_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_WATCHDOG_H_
