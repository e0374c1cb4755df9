// Sleep: wait for a point in time.

#ifndef STILLPOINT_RUNTIME_THREAD_SLEEP_H_
#define STILLPOINT_RUNTIME_THREAD_SLEEP_H_

#include <chrono>

#include "absl/status/status.h"
#include "runtime/base/clock.h"

namespace stillpoint {

// Waits until `deadline`, on CLOCK_MONOTONIC: neither signals nor changes of
// the system's time of day nor permits (ThreadHandle::Unpark) end it, and it
// takes no permit. It is never early; how late it is depends on the thread's
// timer slack (docs/timer_slack.md) and on the load.
//
// A thread whose slack is less than 5 us (and which is no real-time thread)
// does not go to sleep for less than 5 us, since the kernel cannot wake it up
// that soon: it yields its processor (sched_yield(2)) until the deadline.
//
// A deadline that has passed (a duration of zero or less) returns at once,
// without a system call and without giving up the processor; a pending
// interrupt is noticed even so. Deadline::Infinite() waits for an interrupt.
// So does, in effect, any deadline in a hundred years: the thread sleeps in the
// kernel and does not spin.
//
// Any thread, in Managed or in a safe state. A Managed caller is Blocked
// meanwhile, and may wait for a stop on its way back: for it, each call (of
// length zero too) is a poll. A thread that is not attached sleeps as well; it
// cannot be interrupted.
//
// Errors: Cancelled ("Interrupted …") when interrupted, before or during the
// sleep, which takes the interrupt; an interrupt that is there at the deadline
// comes first. FailedPrecondition, at once, from a VM operation, with a ranked
// lock held, inside a NoSafepointScope, or for an infinite sleep on an
// unattached thread, which nobody could end.
absl::Status Sleep(Deadline deadline);

// Sleep for `duration`, counted from the call; any unit and any value: what is
// too long for the clock is infinite.
template <typename Rep, typename Period>
absl::Status Sleep(std::chrono::duration<Rep, Period> duration) {
  return Sleep(Deadline::After(duration));
}

// The same, exact to about a microsecond whatever the timer slack: sleeps in
// the kernel until shortly before the deadline and spins the rest. How much
// that is, is learnt for each thread from how late its wake-ups were; it is
// never more than kMaxSleepSpin, so a wake-up that is later than that makes the
// sleep late. The price is the processor for that time (some tens of
// microseconds as a rule), and two or three system calls: the thread's slack is
// 1 ns while it sleeps, and then again what it was.
//
// It spins in the same state as it sleeps, Blocked for a Managed caller, and
// looks at the interrupt all the time. Stops go on meanwhile without waiting
// for it; they would have to if it spun in Managed and polled.
absl::Status SleepPrecise(Deadline deadline);

template <typename Rep, typename Period>
absl::Status SleepPrecise(std::chrono::duration<Rep, Period> duration) {
  return SleepPrecise(Deadline::After(duration));
}

// The longest time that one SleepPrecise spins.
inline constexpr std::chrono::microseconds kMaxSleepSpin(200);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_SLEEP_H_
