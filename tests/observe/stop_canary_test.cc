// The canary that the other tests rely on notices what it is there to notice.

#include "runtime/observe/stop_canary.h"

#include "gtest/gtest.h"

namespace stillpoint {
namespace {

TEST(StopCanaryTest, CountsChecksThatFindSomebodyInside) {
  StopCanary canary;
  canary.Check();
  EXPECT_EQ(canary.violations(), 0u);
  {
    StopCanary::Work work(canary);
    canary.Check();
    EXPECT_EQ(canary.violations(), 1u);
    {
      StopCanary::Work more(canary);
      canary.Check();
    }
    canary.Check();
    EXPECT_EQ(canary.violations(), 3u);
  }
  canary.Check();
  EXPECT_EQ(canary.violations(), 3u);
}

}  // namespace
}  // namespace stillpoint
