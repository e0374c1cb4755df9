#include "runtime/safepoint/watchdog.h"

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/absl_string.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/event_sink.h"
#include "runtime/base/thread_state.h"
#include "runtime/os/backtrace_signal.h"
#include "runtime/os/symbolize.h"
#include "runtime/os/thread_probe.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/threads_lock.h"

namespace stillpoint {
namespace {

constexpr size_t kMaxDescribed = 16;

std::string Text(int64_t nanos) {
  return absl::FormatDuration(
      absl::Trunc(absl::Nanoseconds(nanos), absl::Microseconds(1)));
}

int64_t Used(const ThreadProbe& before, const ThreadProbe& now) {
  return now.cpu_nanos.value_or(0) - before.cpu_nanos.value_or(0);
}

std::string VerdictText(LateVerdict verdict, const ThreadProbe& before,
                        const ThreadProbe& now, int64_t nanos) {
  const std::string used = absl::StrCat("used ", Text(Used(before, now)),
                                        " of CPU time in ", Text(nanos));
  switch (verdict) {
    case LateVerdict::kRunsWithoutPolling:
      return absl::StrCat("runs without polling: ", used);
    case LateVerdict::kNotScheduled:
      return absl::StrCat("not scheduled: it wanted the processor and got ",
                          100 * Used(before, now) / std::max<int64_t>(nanos, 1),
                          " %: ", used);
    case LateVerdict::kInKernel:
      return absl::StrCat(
          now.system_call.value_or(0) < 0 ? "in a page fault"
                                          : "in a page fault or a system call",
          " while Managed: ", used, ", kernel state ",
          std::string(1, now.state),
          now.system_call.value_or(-1) < 0
              ? ""
              : absl::StrCat(", system call ", *now.system_call));
    case LateVerdict::kArrived:
      return "has become safe meanwhile";
    case LateVerdict::kUnknown:
      break;
  }
  return "the kernel does not say what it does";
}

std::string_view Remedy(LateVerdict verdict) {
  switch (verdict) {
    case LateVerdict::kRunsWithoutPolling:
      return "Poll on every loop's back edge, or open a NativeScope around "
             "native code that takes long";
    case LateVerdict::kNotScheduled:
      return "There are more threads that run than processors: look at the "
             "load, at cpu.max of the cgroup, and at priorities";
    case LateVerdict::kInKernel:
      return "Open a BlockedScope around calls that wait; for page faults look "
             "at swapping";
    case LateVerdict::kArrived:
    case LateVerdict::kUnknown:
      break;
  }
  return "";
}

}  // namespace

int64_t WatchdogHooks::Now() { return MonotonicNanos(); }

ThreadProbe WatchdogHooks::Probe(pid_t tid) { return ProbeThread(tid); }

LateVerdict JudgeLateThread(const ThreadProbe& before, const ThreadProbe& now,
                            int64_t nanos) {
  if (now.state == 'S' || now.state == 'D' || now.state == 'T' ||
      now.state == 't') {
    return LateVerdict::kInKernel;
  }
  if (!now.cpu_nanos.has_value() || !before.cpu_nanos.has_value()) {
    return LateVerdict::kUnknown;
  }
  // It wants to run: what it has not used it has waited for.
  const int64_t used = Used(before, now);
  return used >= nanos - used ? LateVerdict::kRunsWithoutPolling
                              : LateVerdict::kNotScheduled;
}

Watchdog::Watchdog(const WatchdogOptions& options)
    : options_(options),
      hooks_(options.hooks != nullptr ? *options.hooks : default_hooks_) {}

void Watchdog::Warn(std::string_view report) const {
  if (options_.sink == nullptr) return;
  options_.sink->OnMessage(Severity::kWarning, report);
}

std::string Watchdog::WarnOfLock(std::string_view operation, int64_t begin,
                                 const ThreadsLockHolder& holder) const {
  const std::string reason =
      holder.tid == 0
          ? "Threads_lock changes hands"
          : absl::StrCat("Threads_lock is held by thread \"",
                         OsThreadName(holder.tid), "\" (tid ", holder.tid,
                         ") since ", Text(MonotonicNanos() - holder.since));
  Warn(absl::StrCat("Safepoint \"", ToAbsl(operation), "\" is late: it has ",
                    "waited ", Text(Now() - begin),
                    " for Threads_lock: ", reason,
                    ". In this start protocol threads are created with it "
                    "held: use start_protocol=outside"));
  return reason;
}

void Watchdog::DieIfOverdue(std::string_view what, int64_t begin) const {
  if (options_.abort_nanos == 0 ||
      Now() - begin < options_.timeout_nanos + options_.abort_nanos) {
    return;
  }
  Die({what, " is overdue by ", Text(Now() - begin - options_.timeout_nanos),
       " and the option safepoint_abort asks to end the process; the warning "
       "before says who is late"});
}

LateWatch::LateWatch(const Watchdog& watchdog, std::string_view kind,
                     std::string_view name)
    : watchdog_(watchdog),
      kind_(kind),
      name_(name),
      begin_(watchdog.on() ? watchdog.Now() : 0) {}

void LateWatch::Look(absl::Span<Thread* const> late) {
  if (!watchdog_.on() || late.empty()) return;
  const int64_t now = watchdog_.Now();
  if (looked_at_ == 0) {
    // CPU time counts from here: a look at all of them when a stop begins would
    // cost each stop what only late ones need.
    looked_at_ = now;
    for (Thread* thread : late) {
      before_.push_back({thread, watchdog_.Probe(thread->tid())});
    }
  }
  if (now - begin_ < watchdog_.options().timeout_nanos) return;
  if (!warned_) {
    warned_ = true;
    std::string report =
        absl::StrCat(ToAbsl(kind_), " \"", ToAbsl(name_),
                     "\" is late: it has waited ", Text(now - begin_), " for ",
                     late.size(), late.size() == 1 ? " thread." : " threads.");
    for (size_t i = 0; i < std::min(late.size(), kMaxDescribed); ++i) {
      absl::StrAppend(&report, "\n", Describe(*late[i], now));
    }
    if (late.size() > kMaxDescribed) {
      absl::StrAppend(&report, "\n  and ", late.size() - kMaxDescribed,
                      " more");
    }
    watchdog_.Warn(report);
  }
  watchdog_.DieIfOverdue(
      absl::StrCat(ToAbsl(kind_), " \"", ToAbsl(name_), "\""), begin_);
}

std::string LateWatch::Describe(Thread& thread, int64_t now) {
  const ThreadRecord& record = thread.record();
  const pid_t tid = thread.tid();
  const ThreadProbe after = watchdog_.Probe(tid);
  std::vector<uintptr_t> frames;
  if (watchdog_.options().backtrace_signal != 0) {
    frames = CaptureBacktrace(watchdog_.options().backtrace_signal, tid,
                              record.stack);
  }
  // After all looks: what was seen then was seen in Managed.
  const ThreadState state = thread.state();
  const Before* before = BeforeOf(thread);
  LateVerdict verdict = LateVerdict::kUnknown;
  if (IsSafe(state)) {
    verdict = LateVerdict::kArrived;
  } else if (before != nullptr) {
    verdict = JudgeLateThread(before->probe, after, now - looked_at_);
  }
  const ThreadProbe none;
  const std::string why =
      VerdictText(verdict, before != nullptr ? before->probe : none, after,
                  now - looked_at_);
  if (reason_.empty()) {
    reason_ = absl::StrCat("thread \"", record.name, "\" ", why);
  }
  std::string line = absl::StrCat(
      "  \"", record.name, "\" (tid ", tid, ", ",
      ToAbsl(ThreadKindName(thread.kind())), ", ",
      ToAbsl(ThreadStateName(state)),
      IsSafe(state) ? "" : absl::StrCat(" for at least ", Text(now - begin_)),
      "): ", why, ".");
  // relaxed (M28): an address to print.
  const uintptr_t site = record.transition_site.load(std::memory_order_relaxed);
  if (site != 0) {
    absl::StrAppend(&line, " Last change of state at ", SymbolizeAddress(site),
                    ".");
  }
  if (const std::string_view remedy = Remedy(verdict); !remedy.empty()) {
    absl::StrAppend(&line, " ", ToAbsl(remedy), ".");
  }
  if (IsSafe(state)) return line;
  for (size_t i = 0; i < frames.size(); ++i) {
    // A return address may be the first of the next function.
    absl::StrAppend(&line, "\n    #", i, " ",
                    SymbolizeAddress(frames[i] - (i == 0 ? 0 : 1)));
  }
  return line;
}

const LateWatch::Before* LateWatch::BeforeOf(const Thread& thread) const {
  for (const Before& before : before_) {
    if (before.thread == &thread) return &before;
  }
  return nullptr;
}

}  // namespace stillpoint
