#include "runtime/base/spin_tail.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace stillpoint {
namespace {

constexpr int64_t kMax = SpinTail::kMaxNanos;

TEST(SpinTailTest, BeginsOnTheSafeSideAndWithinItsBound) {
  EXPECT_GT(SpinTail().nanos(), 50'000);
  EXPECT_LE(SpinTail().nanos(), kMax);
}

TEST(SpinTailTest, ComesDownToSteadyWakeUps) {
  SpinTail tail;
  for (int i = 0; i < 100; ++i) tail.Learn(7'000);
  EXPECT_GE(tail.nanos(), 7'000);
  EXPECT_LE(tail.nanos(), 8'000);
}

TEST(SpinTailTest, GoesUpToLaterWakeUps) {
  SpinTail tail;
  for (int i = 0; i < 100; ++i) tail.Learn(2'000);
  for (int i = 0; i < 100; ++i) tail.Learn(60'000);
  EXPECT_GE(tail.nanos(), 60'000);
  EXPECT_LE(tail.nanos(), 61'000);
}

TEST(SpinTailTest, CoversWakeUpsThatVary) {
  SpinTail tail;
  int covered = 0;
  for (int i = 0; i < 1'000; ++i) {
    const int64_t late = 5'000 + (i * 7'919) % 10'000;  // 5 to 15 us
    if (i >= 100 && late <= tail.nanos()) ++covered;
    tail.Learn(late);
  }
  EXPECT_EQ(covered, 900);
}

TEST(SpinTailTest, ForgetsAnAccident) {
  SpinTail tail;
  for (int i = 0; i < 100; ++i) tail.Learn(5'000);
  tail.Learn(1'000'000'000);
  EXPECT_LE(tail.nanos(), kMax);
  for (int i = 0; i < 40; ++i) tail.Learn(5'000);
  EXPECT_LE(tail.nanos(), 10'000);
}

TEST(SpinTailTest, StaysWithinItsBoundWhateverItSees) {
  SpinTail tail;
  for (const int64_t late :
       {std::numeric_limits<int64_t>::max(), int64_t{0},
        std::numeric_limits<int64_t>::min(), kMax, kMax + 1, int64_t{-1}}) {
    for (int i = 0; i < 50; ++i) {
      tail.Learn(late);
      EXPECT_GE(tail.nanos(), 0);
      EXPECT_LE(tail.nanos(), kMax);
    }
  }
}

TEST(SpinTailTest, SleepsOfEachMagnitudeHaveTheirOwn) {
  SpinTails tails;
  EXPECT_EQ(&tails.For(std::numeric_limits<int64_t>::min()), &tails.For(0));
  EXPECT_EQ(&tails.For(199'999), &tails.For(0));
  EXPECT_NE(&tails.For(200'000), &tails.For(0));
  EXPECT_NE(&tails.For(2'000'000), &tails.For(200'000));
  EXPECT_NE(&tails.For(20'000'000), &tails.For(2'000'000));
  EXPECT_EQ(&tails.For(std::numeric_limits<int64_t>::max()),
            &tails.For(20'000'000));
  const int64_t before = tails.For(0).nanos();
  for (int i = 0; i < 100; ++i) tails.For(20'000'000).Learn(100'000);
  EXPECT_EQ(tails.For(0).nanos(), before);
  EXPECT_GE(tails.For(50'000'000).nanos(), 100'000);
}

}  // namespace
}  // namespace stillpoint
