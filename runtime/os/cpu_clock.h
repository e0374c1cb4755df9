// The kernel's CPU clocks of threads and of the process, named by numbers that
// are made from the kernel's ids.

#ifndef STILLPOINT_RUNTIME_OS_CPU_CLOCK_H_
#define STILLPOINT_RUNTIME_OS_CPU_CLOCK_H_

#include <sys/types.h>
#include <time.h>

#include <cstdint>
#include <limits>
#include <optional>

namespace stillpoint {

// The kernel's names are CPUCLOCK_SCHED and CPUCLOCK_VIRT (include/linux/
// posix-timers_types.h).
enum class CpuClock : uint32_t {
  kUser = 1,   // user mode only; sampled by the timer tick on many kernels
  kTotal = 2,  // user and kernel mode, exact to the nanosecond
};

enum class CpuClockOf : uint32_t {
  kProcess = 0,
  kThread = 4,
};

static_assert(sizeof(clockid_t) == 4 && std::numeric_limits<int>::digits == 31,
              "the kernel's clock ids are 32 bits wide");

// The id of a clock, for clock_gettime(2): bits 31 to 3 are the complement of
// the thread's or process' id, bit 2 says which of the two, bits 1 and 0 which
// clock. `id` 0 is the caller, for which the kernel looks nobody up. In
// unsigned arithmetic, since a negative number must not be shifted; the last
// conversion is modulo 2^32 (C++20, [conv.integral]).
constexpr clockid_t CpuClockId(CpuClockOf whose, pid_t id, CpuClock clock) {
  const uint32_t complement = ~static_cast<uint32_t>(id);
  return static_cast<clockid_t>((complement << 3) |
                                static_cast<uint32_t>(whose) |
                                static_cast<uint32_t>(clock));
}

// The reading of a CPU clock in nanoseconds; nothing if the kernel refuses it,
// which for an id other than 0 means that this process has no such thread
// (errno EINVAL). One system call. Any thread, any state; may be called in a
// signal handler.
std::optional<int64_t> ReadCpuClock(clockid_t clock);

// The same for the calling thread. Dies with a sentence if it is refused: only
// a seccomp filter can do that.
int64_t CurrentThreadKernelCpuNanos();

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_CPU_CLOCK_H_
