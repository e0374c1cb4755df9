#include "runtime/lock/ranked_mutex.h"

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "gtest/gtest.h"
#include "runtime/base/thread_state.h"
#include "runtime/base/tls_block.h"
#include "runtime/lock/held_locks.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/os/os_thread.h"
#include "tests/base/sanitizers.h"
#include "tests/os/thread_watch.h"

namespace stillpoint {
namespace {

using testing::Rounds;

constexpr LockRank kRank{"Test_lock", kFirstEmbedderRank, "test"};

// For results that are kept, which the analysis cannot follow.
bool Try(RankedMutex& mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  return mutex.TryLock();
}
void Release(RankedMutex& mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  mutex.Unlock();
}

TEST(RankedMutexTest, TryLockTakesOnlyAFreeOne) {
  RankedMutex mutex(kRank);
  ASSERT_TRUE(Try(mutex));
  bool by_other = true;
  std::thread([&] {
    by_other = Try(mutex);
    if (by_other) Release(mutex);
  }).join();
  EXPECT_FALSE(by_other);
  // A second try by the holder is refused, not a relock and not an error.
  bool again = Try(mutex);
  EXPECT_FALSE(again);
  Release(mutex);
  std::thread([&] {
    by_other = Try(mutex);
    if (by_other) Release(mutex);
  }).join();
  EXPECT_TRUE(by_other);
}

TEST(RankedMutexTest, AFailedTryHoldsNothing) {
  RankedMutex mutex(kRank);
  RankedMutexLock lock(mutex);
  std::thread([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    EXPECT_FALSE(mutex.TryLock());
    EXPECT_EQ(InnermostHeldLock(), nullptr);
  }).join();
}

TEST(RankedMutexTest, ALateComerSleepsUntilTheRelease) {
  RankedMutex mutex(kRank);
  std::atomic<pid_t> tid{0};
  std::atomic<bool> got_it{false};
  std::thread waiter;
  {
    RankedMutexLock lock(mutex);
    waiter = std::thread([&] {
      tid.store(CurrentTid());
      RankedMutexLock inner(mutex);
      got_it.store(true);
    });
    while (tid.load() == 0) sched_yield();
    testing::AwaitSleeping(tid.load());
    EXPECT_FALSE(got_it.load());
  }
  waiter.join();
  EXPECT_TRUE(got_it.load());
}

// Incident H3: a signal must not make a waiter an owner.
TEST(RankedMutexTest, SignalsDoNotGiveItAwayIncidentH3) {
  testing::CountUserSignals();
  RankedMutex mutex(kRank);
  std::atomic<pid_t> tid{0};
  std::atomic<bool> got_it{false};
  std::thread waiter;
  {
    RankedMutexLock lock(mutex);
    waiter = std::thread([&] {
      tid.store(CurrentTid());
      RankedMutexLock inner(mutex);
      got_it.store(true);
    });
    while (tid.load() == 0) sched_yield();
    testing::BombardSleeper(tid.load(), Rounds(200));
    EXPECT_FALSE(got_it.load());
  }
  waiter.join();
}

// Plain data behind the lock: TSan and the sum both watch it. Incident A13:
// many threads on one lock; all of them end.
TEST(RankedMutexTest, ExcludesAndAllEndIncidentA13) {
  constexpr int kThreads = 128;
  const int rounds = Rounds(5000);
  RankedMutex mutex(kRank);
  int64_t sum = 0;
  int inside = 0;
  int64_t violations = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < rounds; ++i) {
        // Some by try, as Managed threads do.
        if (!(t % 4 == 0 && mutex.TryLock())) mutex.Lock();
        if (++inside != 1) ++violations;
        ++sum;
        // Now and then the holder loses its processor.
        if (i % 512 == 0) sched_yield();
        --inside;
        mutex.Unlock();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, int64_t{kThreads} * rounds);
  EXPECT_EQ(violations, 0);
}

// Managed threads take it by try only, so a contended one must come free for
// them too: a stale mark that somebody sleeps would be a lock never taken.
TEST(RankedMutexTest, TryersAndWaitersShareIt) {
  const int rounds = Rounds(20'000);
  RankedMutex mutex(kRank);
  int64_t sum = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      const std::atomic<ThreadState> managed{ThreadState::kManaged};
      tls_block.state = &managed;
      for (int i = 0; i < rounds; ++i) {
        while (!mutex.TryLock()) sched_yield();
        ++sum;
        mutex.Unlock();
      }
      tls_block.state = nullptr;
    });
    threads.emplace_back([&] {
      for (int i = 0; i < rounds; ++i) {
        RankedMutexLock lock(mutex);
        ++sum;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, int64_t{4} * rounds);
}

}  // namespace
}  // namespace stillpoint
