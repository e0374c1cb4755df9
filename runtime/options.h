// The options of a runtime: in code, from a string, from the environment.

#ifndef STILLPOINT_RUNTIME_OPTIONS_H_
#define STILLPOINT_RUNTIME_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/event_sink.h"
#include "runtime/thread/fence.h"
#include "runtime/thread/threads_lock.h"

namespace stillpoint {

class WatchdogHooks;  // safepoint/watchdog.h

// The table in README.md is made from the one in options.cc; so are the parser,
// the checks and the messages.
struct Options {
  // Names the VM thread ("<name>-vm") for the system's tools.
  std::string name = "stillpoint";

  // Who pays for the order between mutators and the stopper; docs/
  // safepoint_protocol.md explains. kAuto measures at Create (a few
  // milliseconds), and the choice is reported to the sink.
  FencePolicy fence = FencePolicy::kAuto;

  // How starting threads and the VM thread share Threads_lock.
  StartProtocol start_protocol = StartProtocol::kOutside;

  // Bytes of stack of started threads; 0: the system's default
  // (ulimit -s). Small stacks make starts cheaper.
  size_t stack_size = 0;

  // How late the kernel may be with timed waits of the runtime's threads (the
  // VM thread, started and attached ones; each sets it on itself, and attached
  // ones get theirs back): kMinTimerSlack, which is as exact as the kernel can,
  // to kMaxTimerSlack. Unset: left alone, 50 us as a rule. See
  // docs/timer_slack.md.
  std::optional<std::chrono::nanoseconds> timer_slack = std::nullopt;

  // At least this long between the end of a stop and the begin of the next, so
  // that back-to-back operations leave mutators time to run: by default about
  // one wake-up of a thread. 0: none.
  std::chrono::nanoseconds min_mutator_time = std::chrono::microseconds(100);

  // Whether a thread that requests an operation while the VM thread is idle
  // runs it itself, in the VM thread's place: that saves two wake-ups. The
  // operation then uses the requester's stack and thread-local variables, and
  // the event sink is told on that thread. false: the VM thread runs all of
  // them.
  bool requester_may_run = true;

  // A stop at least this often, even if nobody asks for one: for embedders that
  // do work of their own at every stop (through the event sink), and to find
  // threads that do not poll. 0: never, and an idle runtime makes no wake-up.
  std::chrono::nanoseconds safepoint_interval = std::chrono::nanoseconds(0);

  // The watchdog: who has waited this long for threads to stop, for a handshake
  // or for Threads_lock tells the sink, once, who is late, why, and what to do
  // (docs/diagnostics.md). Nobody wakes up for it while nobody is late. 0: off.
  std::chrono::nanoseconds safepoint_timeout = std::chrono::seconds(1);

  // Ends the process if the wait has still not ended this long after the
  // warning. 0: never.
  std::chrono::nanoseconds safepoint_abort = std::chrono::nanoseconds(0);

  // A signal that the embedder has set aside for the native backtraces of late
  // threads and of dumps, for instance SIGRTMIN + 3; see
  // os/backtrace_signal.h. 0: none, and the library sends no signal.
  int backtrace_signal = 0;

  // How old the point may get from which CurrentThreadCpuNanos() counts without
  // a system call, and so how wrong it can be at worst (thread/cpu_times.h).
  // Each time it is over costs one reading of the kernel's clock. 0: every
  // reading is the kernel's.
  std::chrono::nanoseconds cpu_clock_max_age = std::chrono::microseconds(100);

  // OS threads that run green ones; they are started with the first of those.
  // 0: as many as the process may use processors (affinity mask, and the quota
  // of its control group).
  size_t carriers = 0;

  // At most so many more carriers, for as long as others are held up in native
  // code: see native_handoff.
  size_t extra_carriers = 16;

  // Whether each carrier stays on one processor.
  bool pin_carriers = false;

  // Whether green threads that have begun to run may change carriers. Compilers
  // cache the addresses of thread-local variables, errno among them, across a
  // switch: with this on, code that runs in green threads must not keep any
  // across a call that may wait (docs/green_threads.md). On x86-64 only.
  bool migrate_green_threads = false;

  // Bytes of stack of green threads, 8 KiB to 8 MiB, rounded up to a power of
  // two; 0: 64 KiB (256 KiB under a sanitizer).
  size_t green_stack_size = 0;

  // A green thread that has run for so long makes room at its next poll, if
  // others wait.
  std::chrono::nanoseconds time_slice = std::chrono::milliseconds(10);

  // A green thread that is in native code for so long, with others waiting:
  // those of them that have not begun to run yet (all, if they may migrate) get
  // another carrier.
  std::chrono::nanoseconds native_handoff = std::chrono::milliseconds(1);

  // How long the destructor waits for threads that still live.
  std::chrono::nanoseconds shutdown_timeout = std::chrono::seconds(10);

  // Told of every stop, and of choices made at start. Borrowed; it must outlive
  // the Runtime, and also the process's last stop if Shutdown() failed. Null:
  // nobody is told.
  EventSink* event_sink = nullptr;

  // For tests: what the watchdog looks with. Borrowed like the sink. Null: the
  // clock and the kernel.
  WatchdogHooks* watchdog_hooks = nullptr;
};

// `base` with the settings of `text` applied: "key=value,key=value", blanks
// around either ignored, empty text allowed, later settings win. Values are
// written as the table says: durations with a unit ("100us", "1.5s", "inf"),
// sizes in bytes or with k or m ("64k"). Error: InvalidArgument, listing the
// keys or values that are allowed.
absl::StatusOr<Options> ParseOptions(std::string_view text,
                                     Options base = Options());

// ParseOptions of the environment variable `variable`; `base` if it is not set.
// An error names the variable. Not while other threads change the environment.
absl::StatusOr<Options> OptionsFromEnvironment(
    const char* variable = "STILLPOINT_OPTIONS", Options base = Options());

// InvalidArgument, naming the option and what is allowed, if a value is out of
// range. Runtime::Create calls it.
absl::Status CheckOptions(const Options& options);

// `options` in the form that ParseOptions takes: every key, in the table's
// order.
std::string FormatOptions(const Options& options);

// A markdown table of key, default, allowed values and meaning.
std::string OptionsTable();

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OPTIONS_H_
