#include "runtime/os/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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
    until.tv_sec = deadline.monotonic_nanos() / 1'000'000'000;
    until.tv_nsec = deadline.monotonic_nanos() % 1'000'000'000;
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
