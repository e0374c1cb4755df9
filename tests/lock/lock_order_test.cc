// What the order of locks allows, and how a breach is reported.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "gtest/gtest.h"
#include "runtime/base/thread_state.h"
#include "runtime/base/tls_block.h"
#include "runtime/lock/held_locks.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "tests/base/death.h"

namespace stillpoint {
namespace {

// Breaches are what is tested here.
void Lock(RankedMutex& mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Lock(); }
bool TryLock(RankedMutex& mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  return mutex.TryLock();
}
void Unlock(RankedMutex& mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  mutex.Unlock();
}

constexpr LockRank kFirstRank{"Embedder_first", kFirstEmbedderRank, "test"};
constexpr LockRank kSecondRank{"Embedder_second", kFirstEmbedderRank + 1,
                               "test"};
constexpr LockRank kTwinRank{"Embedder_twin", kFirstEmbedderRank, "test"};

class LockOrderTest : public ::testing::Test {
 protected:
  // Some of them run a thread.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override { EXPECT_EQ(InnermostHeldLock(), nullptr); }

  RankedMutex thread_start_{kThreadStartLockRank};
  RankedMutex threads_{kThreadsLockRank};
  RankedMutex first_{kFirstRank};
  RankedMutex second_{kSecondRank};
  RankedMutex twin_{kTwinRank};
};

using LockOrderDeathTest = LockOrderTest;

TEST_F(LockOrderTest, TheWholeTableCanBeHeldFromOutermostToInnermost) {
  std::vector<std::unique_ptr<RankedMutex>> mutexes;
  for (const LockRank& rank : kLockRanks) {
    mutexes.push_back(std::make_unique<RankedMutex>(rank));
    Lock(*mutexes.back());
    EXPECT_EQ(InnermostHeldLock(), mutexes.back().get());
    EXPECT_EQ(mutexes.back()->name(), rank.name);
    EXPECT_EQ(mutexes.back()->rank(), rank.rank);
    // Nothing may be waited for under it.
    if (rank.leaf) {
      Unlock(*mutexes.back());
      mutexes.pop_back();
    }
  }
  Lock(first_);  // embedders' come after all of them
  Lock(second_);
  Unlock(second_);
  Unlock(first_);
  for (; !mutexes.empty(); mutexes.pop_back()) Unlock(*mutexes.back());
}

TEST_F(LockOrderTest, ThreadStartLockThenThreadsLockIncidentA2) {
  Lock(thread_start_);
  Lock(threads_);
  EXPECT_EQ(InnermostHeldLock(), &threads_);
  Unlock(threads_);
  Unlock(thread_start_);
}

TEST_F(LockOrderDeathTest, ThreadsLockThenThreadStartLockIncidentA2) {
  EXPECT_DIES_SAYING(
      {
        Lock(threads_);
        Lock(thread_start_);
      },
      "lock ThreadStart_lock is taken out of order",
      "while Threads_lock is held");
}

TEST_F(LockOrderDeathTest, EmbedderLockThenRuntimeLockIncidentB12) {
  EXPECT_DIES_SAYING(
      {
        Lock(first_);
        Lock(threads_);
      },
      "lock Threads_lock", "while Embedder_first is held");
}

TEST_F(LockOrderDeathTest, LocksOfOneRankExcludeEachOther) {
  EXPECT_DIES_SAYING(
      {
        Lock(first_);
        Lock(twin_);
      },
      "lock Embedder_twin", "while Embedder_first is held");
}

TEST_F(LockOrderDeathTest, TheSameLockTwice) {
  EXPECT_DIES_SAYING(
      {
        Lock(first_);
        Lock(first_);
      },
      "lock Embedder_first is taken again by the thread that holds it");
}

// Not only the innermost is compared: that one may have come by TryLock.
TEST_F(LockOrderDeathTest, EveryHeldLockCounts) {
  EXPECT_DIES_SAYING(
      {
        Lock(second_);
        if (!TryLock(threads_)) std::abort();
        Lock(first_);
      },
      "lock Embedder_first", "while Embedder_second is held");
}

TEST_F(LockOrderTest, TryLockMayBreakTheOrder) {
  Lock(second_);
  ASSERT_TRUE(TryLock(first_));
  ASSERT_TRUE(TryLock(threads_));
  Unlock(second_);
  EXPECT_EQ(InnermostHeldLock(), &threads_);
  Unlock(threads_);
  Unlock(first_);
}

TEST_F(LockOrderTest, LocksAreReleasedInAnyOrder) {
  Lock(thread_start_);
  Lock(threads_);
  Lock(first_);
  Unlock(threads_);  // from the middle
  EXPECT_EQ(InnermostHeldLock(), &first_);
  Unlock(first_);
  EXPECT_EQ(InnermostHeldLock(), &thread_start_);
  Lock(threads_);
  Unlock(thread_start_);
  EXPECT_EQ(InnermostHeldLock(), &threads_);
  Unlock(threads_);
}

TEST_F(LockOrderDeathTest, ReleaseByAThreadThatDoesNotHoldIt) {
  EXPECT_DIES_SAYING(Unlock(first_), "lock Embedder_first is released by",
                     "does not hold it");
  EXPECT_DIES_SAYING(
      {
        Lock(first_);
        std::thread([&] { Unlock(first_); }).join();
      },
      "lock Embedder_first is released by", "does not hold it");
}

TEST_F(LockOrderDeathTest, WaitingInManaged) {
  const std::atomic<ThreadState> state{ThreadState::kManaged};
  EXPECT_DIES_SAYING(
      {
        tls_block.state = &state;
        Lock(first_);
      },
      "lock Embedder_first is waited for in Managed", "BlockedScope",
      "TryLock");
}

TEST_F(LockOrderTest, WaitingInEverySafeStateAndTryingInAny) {
  for (const ThreadState safe :
       {ThreadState::kVacant, ThreadState::kNew, ThreadState::kNative,
        ThreadState::kBlocked, ThreadState::kTerminated}) {
    const std::atomic<ThreadState> state{safe};
    tls_block.state = &state;
    Lock(first_);
    Unlock(first_);
    tls_block.state = nullptr;
  }
  const std::atomic<ThreadState> managed{ThreadState::kManaged};
  tls_block.state = &managed;
  EXPECT_TRUE(TryLock(first_));
  Unlock(first_);
  tls_block.state = nullptr;
}

// A leaf is held for a few instructions: it may be waited for in Managed, and
// nothing may be waited for while it is held.
constexpr LockRank kLeaf{"Leaf", kFirstEmbedderRank - 1, "test", true};

TEST_F(LockOrderTest, WaitingForALeafInManaged) {
  static RankedMutex leaf(kLeaf);
  const std::atomic<ThreadState> managed{ThreadState::kManaged};
  tls_block.state = &managed;
  Lock(leaf);
  Unlock(leaf);
  tls_block.state = nullptr;
}

TEST_F(LockOrderDeathTest, WaitingWhileALeafIsHeld) {
  static RankedMutex leaf(kLeaf);
  EXPECT_DIES_SAYING(
      {
        Lock(leaf);
        Lock(first_);
      },
      "lock Embedder_first is waited for while Leaf is held", "a leaf");
}

// The page on ranks shows what the purpose says.
TEST_F(LockOrderTest, ThePurposeOfALeafSaysSo) {
  for (const LockRank& lock : kLockRanks) {
    EXPECT_EQ(lock.leaf, lock.purpose.find("a leaf") != std::string_view::npos)
        << lock.name;
  }
}

// Incident B11: the reporter took a ranked lock itself and recursed. One line,
// whatever is held. (EXPECT_DIES_SAYING wants one line and no more.)
TEST_F(LockOrderDeathTest, AViolationWithTheInnermostLockHeldIncidentB11) {
  static constexpr LockRank kInnermost{"Innermost", 1'000'000, "test"};
  static RankedMutex innermost(kInnermost);
  EXPECT_DIES_SAYING(
      {
        Lock(innermost);
        Lock(threads_);
      },
      "lock Threads_lock", "while Innermost is held");
}

TEST_F(LockOrderDeathTest, AViolationWithEverythingHeldIncidentB11) {
  // As many as a thread can hold.
  std::vector<LockRank> ranks;
  std::vector<std::string> names;
  for (size_t i = 0; i < TlsBlock::kMaxHeldLocks; ++i) {
    names.push_back("Embedder_" + std::to_string(i));
  }
  for (size_t i = 0; i < TlsBlock::kMaxHeldLocks; ++i) {
    ranks.push_back({names[i], kFirstEmbedderRank + static_cast<int>(i), ""});
  }
  std::vector<std::unique_ptr<RankedMutex>> mutexes;
  for (const LockRank& rank : ranks) {
    mutexes.push_back(std::make_unique<RankedMutex>(rank));
    Lock(*mutexes.back());
  }
  EXPECT_DIES_SAYING(Lock(threads_), "lock Threads_lock",
                     "while Embedder_0 is held");
  static constexpr LockRank kOneMore{"One_more", 1'000'000, "test"};
  static RankedMutex one_more(kOneMore);
  EXPECT_DIES_SAYING(Lock(one_more), "lock One_more is one too many");
  EXPECT_DIES_SAYING(Unlock(one_more), "lock One_more is released by");
  for (const auto& mutex : mutexes) Unlock(*mutex);
}

}  // namespace
}  // namespace stillpoint
