// A process in which futex(2) is refused.

#include <errno.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdint>

#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/os/futex.h"
#include "tests/base/death.h"
#include "tests/os/seccomp_filter.h"

namespace stillpoint {
namespace {

using testing::DenySystemCalls;

// A wait that cannot wait would be a spin, or a lock that is not one.
TEST(FutexRefusedDeathTest, DiesWithTheRemedy) {
  const std::atomic<uint32_t> word{0};
  EXPECT_DIES_SAYING(
      {
        if (!DenySystemCalls({{SYS_futex, EPERM}})) {
          FAIL() << "this kernel has no seccomp filters";
        }
        FutexWait(word, 0u, Deadline::Infinite());
      },
      "futex wait failed", "Operation not permitted", "seccomp");
}

}  // namespace
}  // namespace stillpoint
