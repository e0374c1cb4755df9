// Semaphore: permits, their order, what ends a wait.

#include "runtime/sync/semaphore.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "runtime/sync/parking_lot.h"
#include "tests/base/sanitizers.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::Rounds;
using testing::StartOrFail;

class SemaphoreTest : public ::testing::Test {
 protected:
  const std::unique_ptr<Runtime> runtime_ = testing::MakeRuntime();
};

TEST_F(SemaphoreTest, CountsPermits) {
  Semaphore semaphore(2);
  EXPECT_TRUE(semaphore.Acquire().ok());
  EXPECT_TRUE(semaphore.TryAcquire());
  EXPECT_FALSE(semaphore.TryAcquire());
  EXPECT_EQ(semaphore.available(), 0u);
  semaphore.Release(3);
  EXPECT_EQ(semaphore.available(), 3u);
}

TEST_F(SemaphoreTest, FirstComeFirstServed) {
  Semaphore semaphore(0);
  std::vector<ThreadHandle> threads;
  std::atomic<int> served{0};
  for (int i = 0; i < 4; ++i) {
    threads.push_back(StartOrFail(*runtime_, "", [&] {
      ManagedScope managed;
      EXPECT_TRUE(semaphore.Acquire().ok());
      served.fetch_add(1);
    }));
    Await([&] {
      return ParkingLot::CountAt(&semaphore) == static_cast<size_t>(i) + 1;
    });
  }
  // Each permit is the first waiter's at once: a try cannot be quicker.
  semaphore.Release();
  EXPECT_FALSE(semaphore.TryAcquire());
  EXPECT_TRUE(threads[0].Join().ok());
  EXPECT_EQ(served.load(), 1);
  semaphore.Release(5);
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(semaphore.available(), 2u);
}

TEST_F(SemaphoreTest, InterruptsAndDeadlinesEndAWait) {
  Semaphore semaphore(0);
  const ThreadHandle waiter = StartOrFail(*runtime_, "", [&] {
    EXPECT_TRUE(IsInterrupted(semaphore.Acquire()));
    for (const int64_t timeout : {INT64_MIN, int64_t{-1}, int64_t{0},
                                  int64_t{1}, int64_t{999'999'999}}) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(semaphore.Acquire(
          Deadline::After(std::chrono::nanoseconds(timeout)))));
    }
  });
  Await([&] { return ParkingLot::CountAt(&semaphore) == 1; });
  EXPECT_TRUE(waiter.Interrupt());
  EXPECT_TRUE(waiter.Join().ok());
  semaphore.Release();
  EXPECT_TRUE(semaphore.TryAcquire());
}

class SemaphoreStressTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(SemaphoreStressTest);

TEST_P(SemaphoreStressTest, NoPermitIsLostUnderStopsAndInterrupts) {
  constexpr uint32_t kPermits = 2;
  Semaphore semaphore(kPermits);
  std::atomic<uint32_t> inside{0};
  std::atomic<int> running{4};
  const int rounds = Rounds(1500);
  const auto body = [&] {
    ManagedScope managed;
    for (int i = 0; i < rounds; ++i) {
      const absl::Status status = semaphore.Acquire(
          i % 3 == 0 ? Deadline::After(std::chrono::microseconds(i % 20))
                     : Deadline::Infinite());
      if (!status.ok()) continue;
      EXPECT_LE(inside.fetch_add(1) + 1, kPermits);
      Poll();
      inside.fetch_sub(1);
      semaphore.Release();
    }
    running.fetch_sub(1);
  };
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(StartOrFail(runtime(), "", body));
  }
  for (int i = 0; running.load() != 0; ++i) {
    threads[i % 4].Interrupt();
    EXPECT_TRUE(runtime().AtSafepoint("stop", [](World&) {}).ok());
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(semaphore.available(), kPermits);
  EXPECT_EQ(ParkingLot::CountAt(&semaphore), 0u);
}

}  // namespace
}  // namespace stillpoint
