// Whether and where the CPU clock without a system call can be used here.

#ifndef STILLPOINT_RUNTIME_OS_FAST_CPU_CLOCK_CHOICE_H_
#define STILLPOINT_RUNTIME_OS_FAST_CPU_CLOCK_CHOICE_H_

#include <cstdint>
#include <string>

#include "runtime/os/fast_cpu_clock.h"

namespace stillpoint {

struct FastCpuClockChoice {
  FastCpuClockConfig config;
  std::string reason;  // one line for the log
};

// Tests what the clock relies on: an invariant time stamp counter, libc's rseq
// area, and that this kernel empties the area when it preempts a thread in user
// mode; then whether it does so, too, when a system call blocks, which decides
// where the clock may be used. The test runs on two short-lived threads of its
// own, once per process; about a millisecond, at most 50 where the machine is
// overloaded (then the answer is "off", and the next call tests again).
// `max_age_nanos`: an older base is not counted from; at most 1 s. 0: off.
FastCpuClockChoice ChooseFastCpuClock(int64_t max_age_nanos);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_FAST_CPU_CLOCK_CHOICE_H_
