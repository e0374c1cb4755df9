#include "runtime/os/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"

namespace stillpoint {
namespace {

long Futex(const void* word, int operation, uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value,
                 timeout, nullptr, FUTEX_BITSET_MATCH_ANY);
}

}  // namespace

FutexResult FutexWaitRaw(const void* word, uint32_t expected,
                         Deadline deadline) {
  timespec until;
  const timespec* timeout = nullptr;
  if (!deadline.infinite()) {
    // The kernel refuses a point before the clock's zero, which is as good as
    // any that has passed.
    const int64_t nanos = std::max<int64_t>(deadline.monotonic_nanos(), 0);
    until.tv_sec = nanos / 1'000'000'000;
    until.tv_nsec = nanos % 1'000'000'000;
    timeout = &until;
  }
  while (true) {
    // WAIT_BITSET, because its timeout is a point on CLOCK_MONOTONIC: a wait
    // that is begun again after a signal does not get longer.
    if (Futex(word, FUTEX_WAIT_BITSET, expected, timeout) == 0) {
      return FutexResult::kWoken;
    }
    switch (errno) {
      case EINTR:
        continue;
      case EAGAIN:
        return FutexResult::kValueChanged;
      case ETIMEDOUT:
        return FutexResult::kTimedOut;
      default:
        Die({"futex wait failed: ", std::strerror(errno),
             "; a seccomp filter must allow futex(2) for this process"});
    }
  }
}

int FutexWakeRaw(const void* word, int count) {
  const long woken =
      Futex(word, FUTEX_WAKE, static_cast<uint32_t>(count), nullptr);
  return woken < 0 ? 0 : static_cast<int>(woken);
}

}  // namespace stillpoint
