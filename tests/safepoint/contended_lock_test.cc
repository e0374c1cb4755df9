// Incident A14: an operation takes the very mutex that mutators fight for. A
// stopped mutator never holds it, so this cannot deadlock; and whoever won it
// while a stop was pending does not carry it into the stop.

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "gtest/gtest.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::StartOrFail;

constexpr LockRank kRank{"contended_lock", kFirstEmbedderRank,
                         "mutators and operations fight for it"};

class ContendedLockTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(ContendedLockTest);

TEST_P(ContendedLockTest, OperationTakesTheLockMutatorsFightFor) {
  RankedMutex mutex(kRank);
  int64_t guarded = 0;  // by the mutex
  int64_t expected_from_stops = 0;
  std::atomic<int64_t> from_mutators{0};
  std::atomic<bool> stop{false};

  // Managed code takes it by try, and waits for it in Blocked when that fails.
  const auto by_try = [&] {
    ManagedScope managed;
    while (!stop.load(std::memory_order_relaxed)) {
      {
        NoSafepointScope no_safepoint;
        StopCanary::Work work(canary());
        if (mutex.TryLock()) {
          ++guarded;
          mutex.Unlock();
          from_mutators.fetch_add(1, std::memory_order_relaxed);
        }
      }
      Poll();
    }
  };
  const auto by_wait = [&] {
    ManagedScope managed;
    while (!stop.load(std::memory_order_relaxed)) {
      { StopCanary::Work work(canary()); }
      {
        BlockedScope blocked;
        RankedMutexLock lock(mutex);
        ++guarded;
      }
      from_mutators.fetch_add(1, std::memory_order_relaxed);
    }
  };
  // A safe thread may hold it during a stop; it gives it back without needing
  // the world.
  const auto native = [&] {
    while (!stop.load(std::memory_order_relaxed)) {
      RankedMutexLock lock(mutex);
      ++guarded;
      from_mutators.fetch_add(1, std::memory_order_relaxed);
      sched_yield();
    }
  };
  const ThreadHandle threads[] = {
      StartOrFail(runtime(), "try", by_try),
      StartOrFail(runtime(), "try", by_try),
      StartOrFail(runtime(), "wait", by_wait),
      StartOrFail(runtime(), "wait", by_wait),
      StartOrFail(runtime(), "native", native),
  };
  for (int i = 0; i < 150; ++i) {
    ASSERT_TRUE(runtime()
                    .AtSafepoint("lock",
                                 [&](World&) {
                                   canary().Check();
                                   RankedMutexLock lock(mutex);
                                   ++guarded;
                                   ++expected_from_stops;
                                 })
                    .ok());
  }
  stop.store(true);
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(guarded, expected_from_stops + from_mutators.load());
}

}  // namespace
}  // namespace stillpoint
