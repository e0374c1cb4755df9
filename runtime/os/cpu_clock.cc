#include "runtime/os/cpu_clock.h"

#include <errno.h>
#include <time.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include "runtime/base/check.h"

namespace stillpoint {

std::optional<int64_t> ReadCpuClock(clockid_t clock) {
  timespec time;
  if (clock_gettime(clock, &time) != 0) return std::nullopt;
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

int64_t CurrentThreadKernelCpuNanos() {
  const std::optional<int64_t> nanos =
      ReadCpuClock(CpuClockId(CpuClockOf::kThread, 0, CpuClock::kTotal));
  if (!nanos.has_value()) [[unlikely]] {
    Die({"the CPU clock of the calling thread cannot be read: ",
         std::strerror(errno),
         "; a seccomp filter must allow clock_gettime(2) for this process"});
  }
  return *nanos;
}

}  // namespace stillpoint
