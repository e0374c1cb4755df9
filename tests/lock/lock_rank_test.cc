// The table of ranks (incident B12: wrong ranks found only in the field).

#include "runtime/lock/lock_rank.h"

#include <cstddef>
#include <set>
#include <string_view>

#include "gtest/gtest.h"

namespace stillpoint {
namespace {

TEST(LockRankTest, NamesAreUniqueAndPurposesStatedIncidentB12) {
  std::set<std::string_view> names;
  for (const LockRank& lock : kLockRanks) {
    EXPECT_FALSE(lock.name.empty());
    EXPECT_FALSE(lock.purpose.empty()) << lock.name;
    EXPECT_TRUE(names.insert(lock.name).second) << lock.name;
  }
}

TEST(LockRankTest, IsListedOutermostFirstIncidentB12) {
  for (size_t i = 1; i < kLockRanks.size(); ++i) {
    EXPECT_LT(kLockRanks[i - 1].rank, kLockRanks[i].rank) << kLockRanks[i].name;
  }
}

TEST(LockRankTest, LeavesRoomForEmbeddersIncidentB12) {
  EXPECT_GT(kLockRanks.front().rank, 0);
  EXPECT_LT(kLockRanks.back().rank, kFirstEmbedderRank);
}

// Incident A2: the throttle in front of Threads_lock has to be outside it.
TEST(LockRankTest, ThreadStartLockIsOutsideThreadsLockIncidentA2) {
  EXPECT_LT(kThreadStartLockRank.rank, kThreadsLockRank.rank);
}

}  // namespace
}  // namespace stillpoint
