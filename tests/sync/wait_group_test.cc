// WaitGroup: who waits goes on when the count is 0, and not before.

#include "runtime/sync/wait_group.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "runtime/sync/parking_lot.h"
#include "tests/base/death.h"
#include "tests/base/sanitizers.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::Rounds;
using testing::StartOrFail;

class WaitGroupTest : public ::testing::Test {
 protected:
  static void AwaitWaiters(const WaitGroup& group, size_t count) {
    Await([&] { return ParkingLot::CountAt(&group) == count; });
  }

  const std::unique_ptr<Runtime> runtime_ = testing::MakeRuntime();
};

TEST_F(WaitGroupTest, WaitsUntilAllIsDone) {
  WaitGroup group;
  EXPECT_TRUE(group.Wait().ok());
  group.Add(2);
  std::vector<ThreadHandle> threads;
  std::atomic<int> through{0};
  for (size_t i = 0; i < 20; ++i) {  // more than one batch
    threads.push_back(StartOrFail(*runtime_, "", [&] {
      ManagedScope managed;
      EXPECT_TRUE(group.Wait().ok());
      through.fetch_add(1);
    }));
    AwaitWaiters(group, i + 1);
  }
  std::thread unattached([&] { EXPECT_TRUE(group.Wait().ok()); });
  AwaitWaiters(group, 21);
  group.Done();
  EXPECT_EQ(group.count(), 1u);
  EXPECT_EQ(through.load(), 0);
  EXPECT_EQ(ParkingLot::CountAt(&group), 21u);
  group.Done();
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  unattached.join();
  EXPECT_TRUE(group.Wait().ok());
}

TEST_F(WaitGroupTest, InterruptsAndDeadlinesEndAWait) {
  WaitGroup group(1);
  const ThreadHandle waiter = StartOrFail(*runtime_, "", [&] {
    EXPECT_TRUE(IsInterrupted(group.Wait()));
    for (const int64_t timeout : {INT64_MIN, int64_t{-1}, int64_t{0},
                                  int64_t{1}, int64_t{999'999'999}}) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(
          group.Wait(Deadline::After(std::chrono::nanoseconds(timeout)))));
    }
  });
  AwaitWaiters(group, 1);
  EXPECT_TRUE(waiter.Interrupt());
  EXPECT_TRUE(waiter.Join().ok());
  group.Done();
  EXPECT_TRUE(group.Wait().ok());
}

TEST_F(WaitGroupTest, OneDoneTooManyDies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  WaitGroup group;
  EXPECT_DIES_SAYING(group.Done(), "once more than Add said");
}

class WaitGroupStressTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(WaitGroupStressTest);

// On the stack of the waiting thread, again and again: it is gone while the
// last Done may still be going on. Plain memory is handed over; TSan checks.
TEST_P(WaitGroupStressTest, ItsMemoryMayGoAndWhatWasDoneIsSeen) {
  constexpr int kWorkers = 2;
  struct Round {
    WaitGroup group{kWorkers};
    int64_t results[kWorkers] = {};
  };
  std::atomic<Round*> work[kWorkers] = {};
  std::atomic<bool> over{false};
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < kWorkers; ++i) {
    threads.push_back(StartOrFail(runtime(), "", [&, i] {
      ManagedScope managed;
      while (!over.load()) {
        Poll();
        Round* const round = work[i].exchange(nullptr);
        if (round == nullptr) continue;
        round->results[i] = 1;
        round->group.Done();
      }
    }));
  }
  int64_t sum = 0;
  const int rounds = Rounds(1000);
  {
    AttachScope attached(runtime(), "waiter");
    ManagedScope managed;
    for (int i = 0; i < rounds; ++i) {
      auto round = std::make_unique<Round>();
      for (std::atomic<Round*>& each : work) each.store(round.get());
      EXPECT_TRUE(round->group.Wait().ok());
      for (const int64_t result : round->results) sum += result;
    }
  }
  for (int i = 0; i < 20; ++i) testing::StopAndCheck(runtime(), canary());
  over.store(true);
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(sum, int64_t{rounds} * kWorkers);
}

// The next round begins while waiting threads of the last one are on their way.
TEST_P(WaitGroupStressTest, ItIsUsedAgain) {
  WaitGroup group;
  std::atomic<int> round{0};
  const int rounds = Rounds(500);
  std::vector<ThreadHandle> threads;
  group.Add();
  for (int i = 0; i < 3; ++i) {
    threads.push_back(StartOrFail(runtime(), "", [&] {
      ManagedScope managed;
      while (round.load() < rounds) {
        EXPECT_TRUE(group.Wait().ok());
        Poll();
      }
    }));
  }
  for (int i = 0; i < rounds; ++i) {
    if (i % 50 == 0) testing::StopAndCheck(runtime(), canary());
    round.store(i + 1);
    group.Done();
    if (i + 1 < rounds) group.Add();
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(group.count(), 0u);
  EXPECT_EQ(ParkingLot::CountAt(&group), 0u);
}

}  // namespace
}  // namespace stillpoint
