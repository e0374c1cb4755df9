// Mutex: who gets it, who waits how, what ends a wait, what is misuse.

#include "runtime/sync/mutex.h"

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/stillpoint.h"
#include "runtime/sync/parking_lot.h"
#include "tests/base/death.h"
#include "tests/base/sanitizers.h"
#include "tests/os/thread_watch.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::Rounds;
using testing::StartOrFail;

constexpr Deadline kPast = Deadline::AtMonotonicNanos(0);
constexpr LockRank kRank{"Test_lock", kFirstEmbedderRank, "test"};

// For results that are kept, which the analysis cannot follow.
bool Try(Mutex& mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  return mutex.TryLock();
}
void Take(Mutex& mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Lock(); }
void Release(Mutex& mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Unlock(); }

class MutexTest : public ::testing::Test {
 protected:
  ThreadHandle Start(std::string_view name, std::function<void()> body) {
    return StartOrFail(*runtime_, name, std::move(body));
  }
  // Runs `body` on a thread of the runtime, and waits for it.
  void OnThread(std::function<void()> body) {
    EXPECT_TRUE(Start("", std::move(body)).Join().ok());
  }
  static void AwaitWaiters(const Mutex& mutex, size_t count) {
    Await([&] { return ParkingLot::CountAt(&mutex) == count; });
  }

  const std::unique_ptr<Runtime> runtime_ = testing::MakeRuntime();
};

TEST_F(MutexTest, ExcludesAndKnowsItsOwner) {
  Mutex mutex("the mutex");
  EXPECT_EQ(mutex.name(), "the mutex");
  EXPECT_FALSE(mutex.HeldByCaller());
  EXPECT_FALSE(mutex.owner().has_value());
  OnThread([&] {
    Take(mutex);
    EXPECT_TRUE(mutex.HeldByCaller());
    mutex.AssertHeld();
    EXPECT_FALSE(Try(mutex));
    ASSERT_TRUE(mutex.owner().has_value());
    EXPECT_EQ(mutex.owner()->thread, Thread::Current());
    std::thread([&] {
      EXPECT_FALSE(mutex.HeldByCaller());
      EXPECT_FALSE(Try(mutex));
    }).join();
    Release(mutex);
    EXPECT_FALSE(mutex.HeldByCaller());
  });
  EXPECT_TRUE(Try(mutex));
  ASSERT_TRUE(mutex.owner().has_value());
  EXPECT_EQ(mutex.owner()->thread, nullptr);  // not attached
  Release(mutex);
}

TEST_F(MutexTest, WhoWaitsIsBlockedAndAStopComesThrough) {
  for (const bool in_managed : {false, true}) {
    Mutex mutex;
    Take(mutex);
    const ThreadHandle waiter = Start("waiter", [&] {
      std::optional<ManagedScope> managed;
      if (in_managed) managed.emplace();
      const ThreadState before = Thread::CurrentOrDie().state();
      MutexLock lock(mutex);
      EXPECT_EQ(Thread::CurrentOrDie().state(), before);
    });
    AwaitWaiters(mutex, 1);
    testing::AwaitState(*runtime_, "waiter", ThreadState::kBlocked);
    // Incident B14.
    EXPECT_TRUE(runtime_->AtSafepoint("stop", [](World&) {}).ok());
    EXPECT_TRUE(waiter.alive());
    Release(mutex);
    EXPECT_TRUE(waiter.Join().ok());
  }
}

TEST_F(MutexTest, ItMayBeHeldAcrossStopsPollsAndTransitions) {
  Mutex mutex;
  std::atomic<bool> held{false};
  std::atomic<bool> stop{false};
  const ThreadHandle owner = Start("owner", [&] {
    MutexLock lock(mutex);
    held.store(true);
    ManagedScope managed;
    while (!stop.load()) {
      Poll();
      NativeScope native;
    }
  });
  Await([&] { return held.load(); });
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(runtime_
                    ->AtSafepoint("try",
                                  [&](World&) {
                                    // Incidents A14, B2: by try only.
                                    EXPECT_FALSE(Try(mutex));
                                  })
                    .ok());
  }
  stop.store(true);
  EXPECT_TRUE(owner.Join().ok());
  EXPECT_TRUE(runtime_
                  ->AtSafepoint("try",
                                [&](World&) {
                                  EXPECT_TRUE(Try(mutex));
                                  Release(mutex);
                                })
                  .ok());
}

TEST_F(MutexTest, UnattachedThreadsWaitAsWell) {
  Mutex mutex;
  Take(mutex);
  std::atomic<bool> got_it{false};
  std::thread waiter([&] {
    MutexLock lock(mutex);
    got_it.store(true);
  });
  AwaitWaiters(mutex, 1);
  EXPECT_FALSE(got_it.load());
  Release(mutex);
  waiter.join();
  EXPECT_TRUE(got_it.load());
}

TEST_F(MutexTest, WaitersComeInTheirOrder) {
  constexpr size_t kWaiters = 5;
  Mutex mutex;
  std::vector<size_t> order;
  std::vector<ThreadHandle> threads;
  Take(mutex);
  for (size_t i = 0; i < kWaiters; ++i) {
    threads.push_back(Start("", [&, i] {
      MutexLock lock(mutex);
      order.push_back(i);
    }));
    AwaitWaiters(mutex, i + 1);
  }
  Release(mutex);
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3, 4}));
}

// The owner gives it up and takes it again without a pause. It would win for
// ever on one processor, and for a time slice on two.
TEST_F(MutexTest, AWaiterIsOvertakenNoMoreThanSoOften) {
  for (int round = 0; round < Rounds(200); ++round) {
    Mutex mutex;
    bool got_it = false;
    uint32_t overtakes = 0;
    Take(mutex);
    const ThreadHandle waiter = Start("", [&] {
      ManagedScope managed;
      MutexLock lock(mutex);
      got_it = true;
    });
    AwaitWaiters(mutex, 1);
    while (true) {
      Release(mutex);
      Take(mutex);
      if (got_it) break;
      ++overtakes;
    }
    Release(mutex);
    EXPECT_LE(overtakes, Mutex::kMaxOvertakes);
    EXPECT_TRUE(waiter.Join().ok());
  }
}

// The same with a mutex that is held for long: the waiter finds it taken again
// each time that it is let go, which may happen only so often.
TEST_F(MutexTest, AWaiterTriesInVainNoMoreThanSoOften) {
  for (int round = 0; round < Rounds(50); ++round) {
    Mutex mutex;
    bool got_it = false;
    uint32_t vain = 0;
    Take(mutex);
    const ThreadHandle waiter = Start("", [&] {
      ManagedScope managed;
      MutexLock lock(mutex);
      got_it = true;
    });
    AwaitWaiters(mutex, 1);
    while (true) {
      Release(mutex);
      Take(mutex);
      if (got_it) break;
      // Held until the waiter has noticed, and waits again.
      AwaitWaiters(mutex, 1);
      ++vain;
    }
    Release(mutex);
    EXPECT_LE(vain, Mutex::kMaxVainTries);
    EXPECT_TRUE(waiter.Join().ok());
  }
}

// TryLock does not queue, so it may go on; but then Lock does not overtake.
TEST_F(MutexTest, TryLockCountsAsOvertaking) {
  Mutex mutex;
  Take(mutex);
  bool got_it = false;
  const ThreadHandle waiter = Start("", [&] {
    MutexLock lock(mutex);
    got_it = true;
  });
  AwaitWaiters(mutex, 1);
  uint32_t overtakes = 0;
  Release(mutex);
  while (overtakes < Mutex::kMaxOvertakes) {
    if (!Try(mutex)) continue;
    const bool over = got_it;
    Release(mutex);
    if (over) break;
    ++overtakes;
  }
  Take(mutex);
  EXPECT_TRUE(got_it);
  Release(mutex);
  EXPECT_TRUE(waiter.Join().ok());
}

TEST_F(MutexTest, AnInterruptEndsTheInterruptibleWaitOnly) {
  Mutex mutex;
  Take(mutex);
  std::atomic<bool> ended{false};
  const ThreadHandle waiter = Start("", [&] {
    ManagedScope managed;
    const absl::Status status = mutex.LockInterruptibly();
    ended.store(true);
    EXPECT_TRUE(IsInterrupted(status)) << status;
    EXPECT_FALSE(mutex.HeldByCaller());
    EXPECT_FALSE(Thread::CurrentOrDie().interrupted());
    MutexLock lock(mutex);
    EXPECT_TRUE(Thread::CurrentOrDie().interrupted());
  });
  AwaitWaiters(mutex, 1);
  EXPECT_TRUE(waiter.Interrupt());
  Await([&] { return ended.load(); });
  AwaitWaiters(mutex, 1);
  EXPECT_TRUE(waiter.Interrupt());
  EXPECT_EQ(ParkingLot::CountAt(&mutex), 1u);
  Release(mutex);
  EXPECT_TRUE(waiter.Join().ok());
}

TEST_F(MutexTest, AFreeOneIsTakenWhateverThereIs) {
  OnThread([] {
    Mutex mutex;
    EXPECT_TRUE(CurrentThreadHandle().Interrupt());
    for (const Deadline deadline : {kPast, Deadline::Infinite()}) {
      EXPECT_TRUE(mutex.LockInterruptibly(deadline).ok());
      Release(mutex);
    }
    EXPECT_TRUE(Thread::CurrentOrDie().ConsumeInterrupt());
  });
}

TEST_F(MutexTest, ShortAndPassedDeadlinesIncidentH4) {
  Mutex mutex;
  Take(mutex);
  OnThread([&] {
    for (const int64_t timeout :
         {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{999'999'999},
          int64_t{1'000'000'000}}) {
      const Deadline deadline =
          Deadline::After(std::chrono::nanoseconds(timeout));
      EXPECT_TRUE(absl::IsDeadlineExceeded(mutex.LockInterruptibly(deadline)));
      EXPECT_TRUE(deadline.passed());
    }
  });
  EXPECT_EQ(ParkingLot::CountAt(&mutex), 0u);
  Release(mutex);
  EXPECT_TRUE(Try(mutex));  // nothing is left of them
  Release(mutex);
}

TEST_F(MutexTest, HugeDeadlinesSleepAndAreInterruptibleIncidentH4) {
  for (const Deadline deadline :
       {Deadline::Infinite(), Deadline::AtMonotonicNanos(INT64_MAX - 1),
        Deadline::After(std::chrono::nanoseconds(INT64_MAX)),
        Deadline::After(std::chrono::hours::max())}) {
    Mutex mutex;
    Take(mutex);
    std::atomic<pid_t> tid{0};
    const ThreadHandle waiter = Start("", [&] {
      tid.store(Thread::CurrentOrDie().tid());
      EXPECT_TRUE(IsInterrupted(mutex.LockInterruptibly(deadline)));
    });
    AwaitWaiters(mutex, 1);
    testing::AwaitSleeping(tid.load());  // in the kernel: it does not spin
    EXPECT_TRUE(waiter.Interrupt());
    EXPECT_TRUE(waiter.Join().ok());
    Release(mutex);
  }
}

TEST_F(MutexTest, SignalsDoNotEndAWaitIncidentH3) {
  testing::CountUserSignals();
  Mutex mutex;
  Take(mutex);
  std::atomic<pid_t> tid{0};
  std::atomic<bool> returned{false};
  const ThreadHandle waiter = Start("", [&] {
    ManagedScope managed;
    tid.store(Thread::CurrentOrDie().tid());
    MutexLock lock(mutex);
    returned.store(true);
  });
  AwaitWaiters(mutex, 1);
  testing::BombardSleeper(tid.load(), Rounds(500));
  EXPECT_FALSE(returned.load());
  Release(mutex);
  EXPECT_TRUE(waiter.Join().ok());
}

TEST_F(MutexTest, WaitingThreadsAndOwnersCanBeListed) {
  Mutex first("first");
  Mutex second("second");
  std::atomic<int> ready{0};
  const auto deadlock = [&](Mutex& own, Mutex& other) {
    MutexLock lock(own);
    ready.fetch_add(1);
    Await([&] { return ready.load() == 2; });
    ManagedScope managed;
    // One is interrupted, and lets the other have it.
    const absl::Status status = other.LockInterruptibly();
    if (&own == &first) {
      EXPECT_TRUE(IsInterrupted(status)) << status;
    } else {
      EXPECT_TRUE(status.ok()) << status;
      Release(other);
    }
  };
  const ThreadHandle one = Start("one", [&] { deadlock(first, second); });
  const ThreadHandle two = Start("two", [&] { deadlock(second, first); });
  AwaitWaiters(first, 1);
  AwaitWaiters(second, 1);
  testing::AwaitState(*runtime_, "one", ThreadState::kBlocked);
  testing::AwaitState(*runtime_, "two", ThreadState::kBlocked);
  const auto look = [&](const Thread& thread, const Mutex& wanted,
                        const ThreadHandle& owner) {
    EXPECT_EQ(thread.waiting_for(), WaitingFor(WaitKind::kMutex, &wanted));
    const std::optional<Mutex::Owner> found =
        Mutex::OwnerOfAwaited(thread.waiting_for());
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->mutex_name, wanted.name());
    EXPECT_EQ(found->thread, owner.slot());
  };
  EXPECT_TRUE(runtime_
                  ->AtSafepoint("dump",
                                [&](World&) {
                                  look(*one.slot(), second, two);
                                  look(*two.slot(), first, one);
                                })
                  .ok());
  EXPECT_TRUE(
      runtime_
          ->Handshake(one, "dump",
                      [&](Thread& thread) { look(thread, second, two); })
          .ok());
  EXPECT_TRUE(one.Interrupt());
  EXPECT_TRUE(one.Join().ok());
  EXPECT_TRUE(two.Join().ok());
  EXPECT_FALSE(
      Mutex::OwnerOfAwaited(WaitingFor(WaitKind::kMutex, &first)).has_value());
  EXPECT_FALSE(Mutex::OwnerOfAwaited(WaitingFor()).has_value());
}

TEST_F(MutexTest, WhereItMayNotWaitItSaysSo) {
  Mutex mutex;
  Take(mutex);
  RankedMutex ranked(kRank);
  OnThread([&] {
    {
      RankedMutexLock lock(ranked);
      EXPECT_TRUE(absl::IsFailedPrecondition(mutex.LockInterruptibly()));
    }
    {
      const NoSafepointScope no_safepoint;
      EXPECT_TRUE(absl::IsFailedPrecondition(mutex.LockInterruptibly()));
      EXPECT_FALSE(Try(mutex));
    }
  });
  EXPECT_TRUE(runtime_
                  ->AtSafepoint("lock",
                                [&](World&) {
                                  EXPECT_TRUE(absl::IsFailedPrecondition(
                                      mutex.LockInterruptibly()));
                                })
                  .ok());
  Release(mutex);
}

class MutexDeathTest : public MutexTest {
 protected:
  MutexDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(MutexDeathTest, Relocking) {
  Mutex mutex("twice");
  Take(mutex);
  EXPECT_DIES_SAYING(Take(mutex), "mutex twice is locked again by the thread");
  Release(mutex);
}

TEST_F(MutexDeathTest, UnlockingWhatIsNotOnesOwn) {
  Mutex mutex("not mine");
  EXPECT_DIES_SAYING(Release(mutex), "mutex not mine is unlocked by a thread");
  Take(mutex);
  EXPECT_DIES_SAYING(std::thread([&] { Release(mutex); }).join(),
                     "mutex not mine is unlocked by a thread");
  Release(mutex);
}

TEST_F(MutexDeathTest, WaitingInAnOperationIncidentB2) {
  Mutex mutex("stopped");
  EXPECT_DIES_SAYING(
      {
        std::thread([&] { Take(mutex); }).join();
        runtime_->AtSafepoint("lock", [&](World&) { Take(mutex); })
            .IgnoreError();
      },
      "Mutex::Lock from inside a VM operation");
}

TEST_F(MutexDeathTest, InDebugBuildsEvenAFreeOneInAnOperation) {
  if (!kDebugChecks) GTEST_SKIP() << "no debug checks";
  Mutex mutex;
  EXPECT_DIES_SAYING(
      runtime_->AtSafepoint("lock", [&](World&) { Take(mutex); }).IgnoreError(),
      "Mutex::Lock from inside a VM operation");
  EXPECT_DIES_SAYING(
      {
        const NoSafepointScope no_safepoint;
        Take(mutex);
      },
      "Mutex::Lock inside a NoSafepointScope");
  EXPECT_DIES_SAYING(mutex.AssertHeld(), "is not owned by the thread");
}

}  // namespace
}  // namespace stillpoint
