// Mutex under stops, interrupts, deadlines, and with its memory going at once.

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "runtime/sync/mutex.h"
#include "runtime/sync/parking_lot.h"
#include "tests/base/sanitizers.h"
#include "tests/support/await.h"
#include "tests/support/busy_mutators.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Rounds;
using testing::StartOrFail;

class MutexStressTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(MutexStressTest);

// Incident A14: mutators of each kind, unattached threads, and operations that
// try, all fight for one mutex while stop follows stop.
TEST_P(MutexStressTest, AllKindsOfThreadsUnderAStopStorm) {
  Mutex mutex;
  int64_t guarded = 0;  // plain: TSan checks that the mutex orders it
  int64_t by_operations = 0;
  std::atomic<int64_t> by_threads{0};
  std::atomic<bool> stop{false};
  const auto add = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    EXPECT_TRUE(mutex.HeldByCaller());
    ++guarded;
  };
  const auto managed = [&] {
    ManagedScope managed;
    while (!stop.load(std::memory_order_relaxed)) {
      {
        MutexLock lock(mutex);
        {
          StopCanary::Work work(canary());
          add();
        }
        Poll();  // held across a stop, now and then
      }
      by_threads.fetch_add(1, std::memory_order_relaxed);
      Poll();
    }
  };
  const auto safe = [&] {
    while (!stop.load(std::memory_order_relaxed)) {
      {
        MutexLock lock(mutex);
        add();
      }
      by_threads.fetch_add(1, std::memory_order_relaxed);
      sched_yield();
    }
  };
  const ThreadHandle threads[] = {
      StartOrFail(runtime(), "managed-1", managed),
      StartOrFail(runtime(), "managed-2", managed),
      StartOrFail(runtime(), "managed-3", managed),
      StartOrFail(runtime(), "native", safe),
  };
  std::thread unattached(safe);
  for (int i = 0; i < Rounds(2000); ++i) {
    ASSERT_TRUE(runtime()
                    .AtSafepoint("try",
                                 [&](World&) {
                                   canary().Check();
                                   if (!mutex.TryLock()) return;
                                   add();
                                   ++by_operations;
                                   mutex.Unlock();
                                 })
                    .ok());
  }
  stop.store(true);
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  unattached.join();
  EXPECT_EQ(guarded, by_operations + by_threads.load());
  EXPECT_FALSE(mutex.owner().has_value());
  EXPECT_EQ(ParkingLot::CountAt(&mutex), 0u);
}

// Whatever ends an attempt, the caller has the mutex if and only if it was told
// so; and nobody is left behind.
TEST_P(MutexStressTest, InterruptsAndDeadlinesRaceWithUnlocking) {
  Mutex mutex;
  int64_t guarded = 0;
  std::atomic<int64_t> locked{0};
  std::atomic<int> running{3};
  const int rounds = Rounds(20000);
  const auto attempt = [&](int kind) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    ManagedScope managed;
    for (int i = 0; i < rounds; ++i) {
      const absl::Status status = mutex.LockInterruptibly(
          kind == 0 ? Deadline::Infinite()
                    : Deadline::After(std::chrono::nanoseconds(i * 10)));
      EXPECT_EQ(status.ok(), mutex.HeldByCaller()) << status;
      if (!status.ok()) {
        EXPECT_TRUE(IsInterrupted(status) || absl::IsDeadlineExceeded(status));
        continue;
      }
      ++guarded;
      if (i % 8 == 0) Poll();
      mutex.Unlock();
      locked.fetch_add(1);
    }
    running.fetch_sub(1);
  };
  const ThreadHandle threads[] = {
      StartOrFail(runtime(), "", [&] { attempt(0); }),
      StartOrFail(runtime(), "", [&] { attempt(1); }),
      StartOrFail(runtime(), "", [&] { attempt(2); }),
  };
  while (running.load() != 0) {
    for (const ThreadHandle& thread : threads) thread.Interrupt();
    EXPECT_TRUE(runtime().AtSafepoint("stop", [](World&) {}).ok());
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(guarded, locked.load());
  EXPECT_FALSE(mutex.owner().has_value());
  { MutexLock lock(mutex); }
  EXPECT_EQ(ParkingLot::CountAt(&mutex), 0u);
}

// The last one to have it destroys it, while the one before may still be in
// Unlock. ASan watches.
TEST_P(MutexStressTest, ItsMemoryMayGoWithTheLastUnlock) {
  struct Shared {
    Mutex mutex;
    int users ABSL_GUARDED_BY(mutex) = 2;
  };
  const auto leave = [](Shared* shared) {
    bool last;
    {
      MutexLock lock(shared->mutex);
      last = --shared->users == 0;
    }
    if (last) delete shared;
  };
  const int rounds = Rounds(30000);
  std::vector<std::atomic<Shared*>> objects(rounds);
  for (auto& object : objects) object.store(new Shared);
  std::atomic<int> turn{0};
  const auto play = [&] {
    ManagedScope managed;
    for (int i = 0; i < rounds; ++i) {
      // Both at about the same time.
      turn.fetch_add(1);
      for (int spins = 0; turn.load() < 2 * i + 2; ++spins) {
        Poll();
        if (spins > 100) {
          NativeScope native;
          sched_yield();
        }
      }
      leave(objects[i].load());
    }
  };
  const ThreadHandle one = StartOrFail(runtime(), "one", play);
  const ThreadHandle two = StartOrFail(runtime(), "two", play);
  EXPECT_TRUE(one.Join().ok());
  EXPECT_TRUE(two.Join().ok());
}

// Incident A13: many threads at one mutex, stops, and work that goes on.
TEST_P(MutexStressTest, ManyThreadsAtOneMutex) {
  const int threads = Rounds(100);
  constexpr int kEach = 20;
  Mutex mutex;
  int64_t guarded = 0;
  testing::BusyMutators mutators(runtime(), canary(), 1);
  std::vector<ThreadHandle> handles;
  for (int i = 0; i < threads; ++i) {
    handles.push_back(StartOrFail(runtime(), "", [&] {
      ManagedScope managed;
      for (int j = 0; j < kEach; ++j) {
        MutexLock lock(mutex);
        ++guarded;
        Poll();
      }
    }));
  }
  for (int i = 0; i < 30; ++i) testing::StopAndCheck(runtime(), canary());
  for (const ThreadHandle& handle : handles) EXPECT_TRUE(handle.Join().ok());
  EXPECT_EQ(guarded, int64_t{threads} * kEach);
}

}  // namespace
}  // namespace stillpoint
