// The timer slack of the calling OS thread: how late the kernel may be with its
// timed waits (PR_SET_TIMERSLACK(2const); docs/timer_slack.md).

#ifndef STILLPOINT_RUNTIME_OS_TIMER_SLACK_H_
#define STILLPOINT_RUNTIME_OS_TIMER_SLACK_H_

#include <cstdint>
#include <optional>

namespace stillpoint {

// Nanoseconds. 0 for a real-time thread since Linux 6.12. Nothing, with errno
// set, if the kernel or a seccomp filter refuses to say. One system call.
std::optional<uint64_t> ReadTimerSlack();

// 0 stands for the default of the thread, which is what its creator had when it
// made it. Without effect on a real-time thread. False, with errno set, if
// refused. One system call.
bool WriteTimerSlack(uint64_t nanos);

// Whether the kernel heeds the slack of the calling thread: not if that is a
// real-time one, whatever ReadTimerSlack says, nor if its policy is not to be
// known. One system call.
bool TimerSlackApplies();

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_TIMER_SLACK_H_
