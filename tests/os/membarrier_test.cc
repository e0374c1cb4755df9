#include "runtime/os/membarrier.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>

#include <cstdint>

#include "gtest/gtest.h"
#include "runtime/os/os_thread.h"
#include "tests/base/death.h"
#include "tests/os/seccomp_filter.h"

namespace stillpoint {
namespace {

using testing::DenySystemCalls;
using testing::RunDenied;
using testing::RunWithoutThreadCreation;

TEST(MembarrierTest, RegistersAgainAndAgain) {
  if (!RegisterMembarrier()) GTEST_SKIP() << "the kernel has no membarrier";
  EXPECT_TRUE(RegisterMembarrier());
  Membarrier();
}

TEST(MembarrierTest, IsMeasured) {
  if (!RegisterMembarrier()) GTEST_SKIP() << "the kernel has no membarrier";
  if (AllowedCpuCount() == 1) GTEST_SKIP() << "no processor for the peer";
  // On a loaded machine the peer may hardly run: then nothing was measured.
  int64_t nanos;
  while ((nanos = MeasureMembarrierNanos()) < 0) sched_yield();
  EXPECT_GT(nanos, 0);
}

TEST(MembarrierTest, ARefusalIsNoticed) {
  for (const int error : {ENOSYS, EPERM, EINVAL}) {
    bool registered = true;
    ASSERT_TRUE(RunDenied({{SYS_membarrier, error}},
                          [&] { registered = RegisterMembarrier(); }));
    EXPECT_FALSE(registered);
  }
}

TEST(MembarrierTest, IsNotMeasuredWithoutAPeer) {
  if (!RegisterMembarrier()) GTEST_SKIP() << "the kernel has no membarrier";
  int64_t nanos = 0;
  ASSERT_TRUE(
      RunWithoutThreadCreation([&] { nanos = MeasureMembarrierNanos(); }));
  EXPECT_LT(nanos, 0);
}

TEST(MembarrierTest, SerializingInstructionsIsRefusedOrWorks) {
  if (SerializeInstructionsEverywhere()) {
    EXPECT_TRUE(SerializeInstructionsEverywhere());
  }
  bool serialized = true;
  ASSERT_TRUE(RunDenied({{SYS_membarrier, EPERM}}, [&] {
    serialized = SerializeInstructionsEverywhere();
  }));
  EXPECT_FALSE(serialized);
}

// Mutators have relied on it by then, so there is no way on.
TEST(MembarrierDeathTest, AFailureAfterSuccessIsFatal) {
  if (!RegisterMembarrier()) GTEST_SKIP() << "the kernel has no membarrier";
  EXPECT_DIES_SAYING(
      {
        if (!RegisterMembarrier() ||
            !DenySystemCalls({{SYS_membarrier, EPERM}})) {
          FAIL() << "this kernel has no seccomp filters";
        }
        Membarrier();
      },
      "membarrier failed after it had worked", "Operation not permitted",
      "seccomp", "fence = full");
}

}  // namespace
}  // namespace stillpoint
