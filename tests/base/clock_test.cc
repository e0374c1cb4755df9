#include "runtime/base/clock.h"

#include <chrono>
#include <cstdint>
#include <ratio>

#include "gtest/gtest.h"

namespace stillpoint {
namespace {

using std::chrono::nanoseconds;

TEST(ClockTest, NeverGoesBack) {
  int64_t last = MonotonicNanos();
  EXPECT_GT(last, 0);
  for (int i = 0; i < 100'000; ++i) {
    const int64_t now = MonotonicNanos();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(DeadlineTest, InfiniteNeverPasses) {
  const Deadline never = Deadline::Infinite();
  EXPECT_TRUE(never.infinite());
  EXPECT_FALSE(never.passed());
  EXPECT_EQ(never.monotonic_nanos(), INT64_MAX);
}

// Incident H4: overlong, zero and negative timeouts.
TEST(DeadlineTest, NegativeAndZeroHavePassedIncidentH4) {
  for (const int64_t timeout :
       {INT64_MIN, INT64_MIN + 1, int64_t{-1'000'000'000}, int64_t{-1},
        int64_t{0}}) {
    const Deadline deadline = Deadline::After(nanoseconds(timeout));
    EXPECT_TRUE(deadline.passed()) << timeout;
    EXPECT_FALSE(deadline.infinite()) << timeout;
  }
}

TEST(DeadlineTest, TimeoutsAreCountedFromNowIncidentH4) {
  for (const int64_t timeout :
       {int64_t{1}, int64_t{999'999'999}, int64_t{1'000'000'000},
        int64_t{86'400'000'000'000}}) {
    const int64_t before = MonotonicNanos();
    const Deadline deadline = Deadline::After(nanoseconds(timeout));
    const int64_t after = MonotonicNanos();
    EXPECT_GE(deadline.monotonic_nanos(), before + timeout);
    EXPECT_LE(deadline.monotonic_nanos(), after + timeout);
  }
}

TEST(DeadlineTest, TooLargeIsInfiniteIncidentH4) {
  EXPECT_TRUE(Deadline::After(nanoseconds(INT64_MAX)).infinite());
  EXPECT_TRUE(Deadline::After(nanoseconds(INT64_MAX - 1)).infinite());
  // Larger than the clock's range only together with the present time.
  EXPECT_TRUE(
      Deadline::After(nanoseconds(INT64_MAX - MonotonicNanos())).infinite());
}

// hours::max() in nanoseconds does not fit 64 bits, and wraps to -1 hour.
TEST(DeadlineTest, CoarseUnitsDoNotOverflowIncidentH4) {
  using std::chrono::hours;
  using std::chrono::seconds;
  EXPECT_TRUE(Deadline::After(hours::max()).infinite());
  EXPECT_TRUE(Deadline::After(seconds::max()).infinite());
  EXPECT_TRUE(Deadline::After(std::chrono::milliseconds::max()).infinite());
  EXPECT_TRUE(Deadline::After(hours(2'562'047)).infinite());
  EXPECT_FALSE(Deadline::After(hours(2'000'000)).infinite());
  EXPECT_TRUE(Deadline::After(hours::min()).passed());
  EXPECT_TRUE(Deadline::After(seconds::min()).passed());
  EXPECT_TRUE(Deadline::After(hours(0)).passed());

  const int64_t before = MonotonicNanos();
  EXPECT_GE(Deadline::After(hours(1)).monotonic_nanos(),
            before + 3'600'000'000'000);
}

TEST(DeadlineTest, OtherRepresentationsIncidentH4) {
  using Seconds = std::chrono::duration<double>;
  using Minutes = std::chrono::duration<short, std::ratio<60>>;
  using Picoseconds = std::chrono::duration<int64_t, std::pico>;
  EXPECT_TRUE(Deadline::After(Seconds(1e300)).infinite());
  EXPECT_TRUE(Deadline::After(Seconds(-1e300)).passed());
  EXPECT_TRUE(Deadline::After(Seconds(0)).passed());
  EXPECT_FALSE(Deadline::After(Minutes::max()).infinite());
  EXPECT_FALSE(Deadline::After(Minutes::max()).passed());
  EXPECT_TRUE(Deadline::After(Minutes::min()).passed());
  EXPECT_FALSE(Deadline::After(Picoseconds::max()).infinite());
  EXPECT_FALSE(Deadline::After(Picoseconds::max()).passed());

  const int64_t before = MonotonicNanos();
  EXPECT_GE(Deadline::After(Seconds(0.5)).monotonic_nanos(),
            before + 500'000'000);
}

// Unsigned counts that no signed number holds, and units whose conversion
// multiplies before it divides (a frame of NTSC video).
TEST(DeadlineTest, NoUnitOverflowsIncidentH4) {
  using Unsigned = std::chrono::duration<uint64_t, std::nano>;
  using Finer = std::chrono::duration<uint64_t, std::ratio<2, 3'000'000'000>>;
  using Frames = std::chrono::duration<int64_t, std::ratio<1001, 30'000>>;
  EXPECT_TRUE(Deadline::After(Unsigned::max()).infinite());
  EXPECT_TRUE(Deadline::After(Unsigned(uint64_t{1} << 63)).infinite());
  EXPECT_TRUE(Deadline::After(Finer::max()).infinite());
  EXPECT_TRUE(Deadline::After(Frames::max()).infinite());
  EXPECT_TRUE(Deadline::After(Frames::min()).passed());
  // A hundred years; four times that does not fit.
  EXPECT_FALSE(Deadline::After(Frames(100'000'000'000)).infinite());
  EXPECT_TRUE(Deadline::After(Frames(400'000'000'000)).infinite());

  const int64_t before = MonotonicNanos();
  EXPECT_GE(Deadline::After(Frames(100'000'000'000)).monotonic_nanos(),
            before + 3'336'666'666'666'666'666);
  EXPECT_GE(Deadline::After(Frames(30)).monotonic_nanos(),
            before + 1'001'000'000);
}

TEST(DeadlineTest, AtAPointOfTheClock) {
  const int64_t now = MonotonicNanos();
  EXPECT_TRUE(Deadline::AtMonotonicNanos(now).passed());
  EXPECT_TRUE(Deadline::AtMonotonicNanos(0).passed());
  EXPECT_TRUE(Deadline::AtMonotonicNanos(-1).passed());
  EXPECT_TRUE(Deadline::AtMonotonicNanos(INT64_MIN).passed());
  EXPECT_FALSE(Deadline::AtMonotonicNanos(INT64_MAX - 1).passed());
  EXPECT_FALSE(Deadline::AtMonotonicNanos(INT64_MAX - 1).infinite());
  EXPECT_TRUE(Deadline::AtMonotonicNanos(INT64_MAX).infinite());
}

}  // namespace
}  // namespace stillpoint
