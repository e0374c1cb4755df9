#include "runtime/observe/thread_dump.h"

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/absl_string.h"
#include "runtime/base/clock.h"
#include "runtime/base/thread_state.h"
#include "runtime/observe/deadlocks.h"
#include "runtime/os/backtrace_signal.h"
#include "runtime/os/frame_walk.h"
#include "runtime/os/os_thread.h"
#include "runtime/os/symbolize.h"
#include "runtime/safepoint/handshake.h"
#include "runtime/safepoint/handshake_call.h"
#include "runtime/safepoint/watchdog.h"
#include "runtime/thread/cpu_times.h"
#include "runtime/thread/green_cpu_times.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/temporary_member.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_handle.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/thread_snapshot.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {
namespace {

constexpr size_t kMaxFrames = 64;

std::string Text(int64_t nanos) {
  return absl::FormatDuration(
      absl::Trunc(absl::Nanoseconds(nanos), absl::Microseconds(1)));
}

// What was seen of one thread: names and addresses are put into words later,
// where nobody waits for it.
struct Seen {
  ThreadState state = ThreadState::kNew;
  pid_t tid = 0;
  WaitingFor waiting_for;
  std::string owner;
  uint32_t suspended = 0;
  StackBounds stack;
  bool has_frames = false;
  std::vector<uintptr_t> frames;
  bool from_outside = false;
};

// The thread runs no managed code: it is in a handshake, or the world is
// stopped. Or it is looked at `from_outside`, where only words can be read.
Seen Look(Thread& thread, const ThreadSnapshot& all,
          const ThreadDumpOptions& options, bool from_outside) {
  const ThreadRecord& record = thread.record();
  Seen seen;
  seen.from_outside = from_outside;
  seen.state = thread.state();
  seen.tid = thread.tid();
  seen.waiting_for = thread.waiting_for();
  // relaxed (M62): a glance.
  seen.suspended = record.suspend_count.load(std::memory_order_relaxed);
  seen.owner = OwnerText(all, seen.waiting_for);
  // Written while it was New, published by the store that ended that.
  if (seen.state != ThreadState::kNew) seen.stack = record.stack;
  if (from_outside || !options.backtraces || record.saved.stack_pointer == 0) {
    return seen;
  }
  seen.has_frames = true;
  seen.frames.resize(kMaxFrames);
  seen.frames.resize(WalkFrames(record.saved.frame_pointer(), seen.stack,
                                seen.frames.data(), kMaxFrames));
  return seen;
}

std::string Line(const PinnedThread& pinned, const Seen& seen) {
  const Thread& thread = pinned.thread();
  std::string line = absl::StrCat("\"", ToAbsl(pinned.name()), "\" #",
                                  pinned.id(), " tid=", seen.tid, " ",
                                  ToAbsl(ThreadKindName(thread.kind())), " ",
                                  ToAbsl(ThreadStateName(seen.state)));
  if (seen.waiting_for.kind() != WaitKind::kNothing) {
    absl::StrAppend(&line, ", waits for ",
                    ToAbsl(WaitKindName(seen.waiting_for.kind())));
    if (seen.waiting_for.object() != nullptr) {
      absl::StrAppend(
          &line, " 0x",
          absl::Hex(reinterpret_cast<uintptr_t>(seen.waiting_for.object())));
    }
    absl::StrAppend(&line, seen.owner);
  }
  if (seen.suspended > 0) {
    absl::StrAppend(&line, ", suspended=", seen.suspended);
  }
  if (const absl::StatusOr<ThreadCpuTimes> times = pinned.GetCpuTimes();
      times.ok()) {
    absl::StrAppend(&line, ", cpu=", Text(times->total),
                    " elapsed=", Text(times->elapsed));
  }
  if (thread.kind() == ThreadKind::kGreen) {
    const GreenCounts counts = ReadGreenCounts(thread);
    absl::StrAppend(&line, " switches=", counts.switches,
                    " queued=", Text(counts.queued_nanos));
  }
  absl::StrAppend(&line, ", stack=[0x", absl::Hex(seen.stack.low), ", 0x",
                  absl::Hex(seen.stack.high), ")");
  if (seen.from_outside) {
    absl::StrAppend(&line, ", does not poll: seen from outside");
  }
  return line;
}

void AppendThread(const PinnedThread& pinned, Seen seen,
                  const ThreadDumpOptions& options, int backtrace_signal,
                  std::string& dump) {
  absl::StrAppend(&dump, Line(pinned, seen), "\n");
  if (!options.backtraces) return;
  if (!seen.has_frames && backtrace_signal != 0 &&
      pinned.thread().kind() == ThreadKind::kNative) {
    seen.frames = CaptureBacktrace(backtrace_signal, seen.tid, seen.stack);
  }
  for (size_t i = 0; i < seen.frames.size(); ++i) {
    // A return address may be the first of the next function.
    const bool returns = seen.has_frames || i > 0;
    absl::StrAppend(&dump, "    #", i, " ",
                    SymbolizeAddress(seen.frames[i] - (returns ? 1 : 0)), "\n");
  }
}

std::string Heading(const ThreadSnapshot& all, std::string_view how) {
  return absl::StrCat("Thread dump, ", ToAbsl(how), ": ", all.size(),
                      all.size() == 1 ? " thread\n" : " threads\n");
}

}  // namespace

absl::StatusOr<std::string> DumpByHandshakes(
    const std::shared_ptr<Registry>& registry, const ThreadDumpOptions& options,
    int backtrace_signal) {
  // Before the caller is one of them only for this.
  const ThreadSnapshot all = ThreadSnapshot::Take(registry);
  HandshakeCall call{registry, "thread dump"};
  // The patience is the watchdog here.
  call.watchdog = std::make_shared<const Watchdog>(WatchdogOptions());
  if (absl::Status allowed = CheckMayAsk(call); !allowed.ok()) return allowed;
  const TemporaryMember member(*registry, "thread dump");
  if (!member.status().ok()) return member.status();
  std::string dump = Heading(all, "one after the other");
  for (const PinnedThread& pinned : all) {
    Seen seen;
    call.deadline = Deadline::After(options.patience);
    const ThreadHandle handle = all.HandleOf(pinned);
    const absl::StatusOr<size_t> done =
        HandshakeWith(call, absl::MakeConstSpan(&handle, 1), [&](Thread& t) {
          seen = Look(t, all, options, /*from_outside=*/false);
        });
    if (!done.ok()) {
      if (!absl::IsDeadlineExceeded(done.status())) return done.status();
      seen = Look(pinned.thread(), all, options, /*from_outside=*/true);
    } else if (*done == 0) {
      continue;  // it has left meanwhile
    }
    AppendThread(pinned, std::move(seen), options, backtrace_signal, dump);
  }
  if (options.find_deadlocks) dump += DescribeDeadlocks(all);
  return dump;
}

std::string DumpStoppedWorld(const std::shared_ptr<Registry>& registry,
                             const ThreadDumpOptions& options,
                             int backtrace_signal) {
  const ThreadSnapshot all = ThreadSnapshot::Take(registry);
  std::string dump = Heading(all, "at a safepoint");
  for (const PinnedThread& pinned : all) {
    AppendThread(pinned,
                 Look(pinned.thread(), all, options, /*from_outside=*/false),
                 options, backtrace_signal, dump);
  }
  if (options.find_deadlocks) dump += DescribeDeadlocks(all);
  return dump;
}

}  // namespace stillpoint
