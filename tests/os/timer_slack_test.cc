// The timer slack of an OS thread, as the kernel has it.

#include "runtime/os/timer_slack.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <thread>

#include "gtest/gtest.h"
#include "tests/os/seccomp_filter.h"

namespace stillpoint {
namespace {

TEST(OsTimerSlackTest, IsReadAsItWasWritten) {
  std::thread([] {
    // The last two do not fit into the int that prctl() returns.
    for (const uint64_t nanos :
         {uint64_t{1}, uint64_t{50'000}, uint64_t{3'000'000'000},
          uint64_t{std::numeric_limits<int64_t>::max()}}) {
      ASSERT_TRUE(WriteTimerSlack(nanos));
      EXPECT_EQ(ReadTimerSlack(), std::optional<uint64_t>(nanos));
    }
  }).join();
}

TEST(OsTimerSlackTest, IsTheThreadsOwnAndInherited) {
  const std::optional<uint64_t> mine = ReadTimerSlack();
  ASSERT_TRUE(mine.has_value());
  std::thread([mine] {
    EXPECT_EQ(ReadTimerSlack(), mine);
    ASSERT_TRUE(WriteTimerSlack(*mine + 7));
    std::thread([mine] {
      EXPECT_EQ(ReadTimerSlack(), std::optional<uint64_t>(*mine + 7));
      ASSERT_TRUE(WriteTimerSlack(1));
      // Back to what its creator had.
      ASSERT_TRUE(WriteTimerSlack(0));
      EXPECT_EQ(ReadTimerSlack(), std::optional<uint64_t>(*mine + 7));
    }).join();
  }).join();
  EXPECT_EQ(ReadTimerSlack(), mine);
}

TEST(OsTimerSlackTest, AppliesToAllButRealTimeThreads) {
  EXPECT_TRUE(TimerSlackApplies());
  bool became_one = false;
  std::thread([&] {
    sched_param param = {};
    EXPECT_EQ(sched_setscheduler(0, SCHED_BATCH, &param), 0);
    EXPECT_TRUE(TimerSlackApplies());
    param.sched_priority = 1;
    became_one =
        sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) == 0;
    EXPECT_EQ(TimerSlackApplies(), !became_one);
  }).join();
  const bool ran = testing::RunDenied({{SYS_sched_getscheduler, EPERM}}, [] {
    EXPECT_FALSE(TimerSlackApplies());
  });
  if (!ran) GTEST_SKIP() << "this kernel has no seccomp filters";
  if (!became_one) GTEST_SKIP() << "real-time scheduling is not permitted here";
}

TEST(OsTimerSlackTest, ARefusalIsToldWithItsReason) {
  const bool ran = testing::RunDenied({{SYS_prctl, EPERM}}, [] {
    errno = 0;
    EXPECT_EQ(ReadTimerSlack(), std::nullopt);
    EXPECT_EQ(errno, EPERM);
    errno = 0;
    EXPECT_FALSE(WriteTimerSlack(1));
    EXPECT_EQ(errno, EPERM);
  });
  if (!ran) GTEST_SKIP() << "this kernel has no seccomp filters";
}

}  // namespace
}  // namespace stillpoint
