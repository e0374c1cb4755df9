// The timer slack of the calling thread: how late the kernel may be with its
// timed waits. docs/timer_slack.md has what it applies to and what it costs.

#ifndef STILLPOINT_RUNTIME_THREAD_TIMER_SLACK_H_
#define STILLPOINT_RUNTIME_THREAD_TIMER_SLACK_H_

#include <chrono>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stillpoint {

// What may be asked for; 1 ns is as exact as the kernel can.
inline constexpr std::chrono::nanoseconds kMinTimerSlack(1);
inline constexpr std::chrono::nanoseconds kMaxTimerSlack(1'000'000'000);

// The slack of the calling thread, as the kernel has it. Zero for a real-time
// thread (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE) since Linux 6.12; older kernels
// tell a value there that they do not use. Any thread, attached or not, in any
// state; one system call, never waits. Error: FailedPrecondition if prctl(2) is
// refused.
absl::StatusOr<std::chrono::nanoseconds> CurrentTimerSlack();

// Sets it, until it is set again. An attached (foreign) thread gets its own
// back when it is detached. Threads that the caller creates afterwards begin
// with this value, unless the runtime has one for them. The kernel ignores it
// on a real-time thread. Any thread, attached or not, in any state; one or two
// system calls, never waits. Errors, with nothing changed: InvalidArgument,
// saying why, outside kMinTimerSlack to kMaxTimerSlack; FailedPrecondition if
// prctl(2) is refused, and on a green thread.
absl::Status SetCurrentTimerSlack(std::chrono::nanoseconds slack);

// --- For the runtime's own floors. ---

// Why no other values are allowed; follows a list of those that are.
inline constexpr std::string_view kTimerSlackReason =
    "to the kernel 0 is the thread's default, not none, and every timed wait "
    "may be late by the slack";

// InvalidArgument, saying why, for a slack that is out of range.
absl::Status CheckTimerSlack(std::chrono::nanoseconds slack);

// Gives a foreign thread its own slack back, if it was changed. On its way out
// of the runtime.
void RestoreTimerSlack();

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_TIMER_SLACK_H_
