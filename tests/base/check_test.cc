#include "runtime/base/check.h"

#include <signal.h>
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/death.h"

namespace stillpoint {
namespace {

using ::testing::KilledBySignal;
using ::testing::StrEq;

TEST(DieDeathTest, JoinsItsPartsInOneLine) {
  EXPECT_EXIT(Die({"lock ", "L", " is held"}), KilledBySignal(SIGABRT),
              StrEq("stillpoint: lock L is held\n"));
}

TEST(DieDeathTest, CutsALongMessage) {
  // Room for the prefix, the text and the line end is 1,024 bytes.
  const std::string prefix = "stillpoint: ";
  const std::string kept(1023 - prefix.size(), 'x');
  EXPECT_EXIT(Die({kept}), KilledBySignal(SIGABRT),
              StrEq(prefix + kept + "\n"));
  EXPECT_EXIT(Die({kept, "y"}), KilledBySignal(SIGABRT),
              StrEq(prefix + kept + "\n"));
  EXPECT_EXIT(Die({std::string(100'000, 'x'), "y", std::string(5, 'z')}),
              KilledBySignal(SIGABRT), StrEq(prefix + kept + "\n"));
}

TEST(DieDeathTest, DiesWithStandardErrorClosed) {
  // A message that cannot be written must not keep the process alive.
  EXPECT_EXIT(
      {
        close(STDERR_FILENO);
        Die({"unheard"});
      },
      KilledBySignal(SIGABRT), StrEq(""));
}

TEST(CheckDeathTest, DiesUnlessTheConditionHolds) {
  STILLPOINT_CHECK(1 + 1 == 2, "arithmetic");
  EXPECT_DIES_SAYING(STILLPOINT_CHECK(1 + 1 == 3, "one and one", " is two"),
                     "one and one is two");
}

TEST(CheckDeathTest, DebugChecksFollowTheBuild) {
  int evaluations = 0;
  const auto count = [&] { return ++evaluations > 0; };
  STILLPOINT_DCHECK(count(), "never");
#ifdef NDEBUG
  EXPECT_EQ(evaluations, 0);
  STILLPOINT_DCHECK(false, "not in this build");
#else
  EXPECT_EQ(evaluations, 1);
  EXPECT_DIES_SAYING(STILLPOINT_DCHECK(false, "in debug builds"),
                     "in debug builds");
#endif
}

}  // namespace
}  // namespace stillpoint
