// CondVar: notifications are neither lost nor made up.

#include "runtime/sync/cond_var.h"

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "runtime/sync/mutex.h"
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

class CondVarTest : public ::testing::Test {
 protected:
  ThreadHandle Start(std::string_view name, std::function<void()> body) {
    return StartOrFail(*runtime_, name, std::move(body));
  }
  void AwaitWaiters(size_t count) {
    Await([&] { return ParkingLot::CountAt(&cond_) == count; });
  }

  const std::unique_ptr<Runtime> runtime_ = testing::MakeRuntime();
  Mutex mutex_;
  CondVar cond_;
};

TEST_F(CondVarTest, NotifyOneLetsGoTheFirstOnly) {
  std::vector<int> order;
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 3; ++i) {
    threads.push_back(Start("", [&, i] {
      ManagedScope managed;
      MutexLock lock(mutex_);
      EXPECT_TRUE(cond_.Wait(mutex_).ok());
      EXPECT_TRUE(mutex_.HeldByCaller());
      order.push_back(i);
    }));
    AwaitWaiters(i + 1);
  }
  for (int i = 0; i < 3; ++i) {
    cond_.NotifyOne();
    EXPECT_TRUE(threads[i].Join().ok());
    EXPECT_EQ(ParkingLot::CountAt(&cond_), 2u - i);
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  cond_.NotifyOne();  // nobody: it is not kept
  MutexLock lock(mutex_);
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      cond_.Wait(mutex_, Deadline::After(std::chrono::milliseconds(1)))));
}

TEST_F(CondVarTest, NotifyAllLetsGoAllThatWait) {
  constexpr int kThreads = 40;  // several batches
  int woken = 0;
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(Start("", [&] {
      MutexLock lock(mutex_);
      EXPECT_TRUE(cond_.Wait(mutex_).ok());
      ++woken;
    }));
  }
  AwaitWaiters(kThreads);
  cond_.NotifyAll();
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(woken, kThreads);
}

TEST_F(CondVarTest, UnattachedThreadsWaitAsWell) {
  bool ready = false;
  std::thread waiter([&] {
    MutexLock lock(mutex_);
    EXPECT_TRUE(cond_.Await(mutex_, [&] { return ready; }).ok());
  });
  AwaitWaiters(1);
  {
    MutexLock lock(mutex_);
    ready = true;
    cond_.NotifyAll();
  }
  waiter.join();
}

TEST_F(CondVarTest, AnInterruptEndsItWithTheMutexHeld) {
  std::atomic<bool> uninterruptible{false};
  const ThreadHandle waiter = Start("", [&] {
    MutexLock lock(mutex_);
    EXPECT_TRUE(IsInterrupted(cond_.Wait(mutex_)));
    EXPECT_TRUE(mutex_.HeldByCaller());
    EXPECT_FALSE(Thread::CurrentOrDie().interrupted());
    // One that is pending.
    EXPECT_TRUE(CurrentThreadHandle().Interrupt());
    EXPECT_TRUE(IsInterrupted(cond_.Wait(mutex_)));
    // One that does not count.
    EXPECT_TRUE(CurrentThreadHandle().Interrupt());
    uninterruptible.store(true);
    cond_.WaitUninterruptibly(mutex_);
    EXPECT_TRUE(Thread::CurrentOrDie().interrupted());
  });
  AwaitWaiters(1);
  EXPECT_TRUE(waiter.Interrupt());
  Await([&] { return uninterruptible.load(); });
  AwaitWaiters(1);
  EXPECT_TRUE(waiter.Interrupt());
  EXPECT_EQ(ParkingLot::CountAt(&cond_), 1u);
  cond_.NotifyOne();
  EXPECT_TRUE(waiter.Join().ok());
}

TEST_F(CondVarTest, DeadlinesOfAllKindsIncidentH4) {
  const ThreadHandle waiter = Start("", [&] {
    MutexLock lock(mutex_);
    for (const int64_t timeout :
         {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{999'999'999},
          int64_t{1'000'000'000}}) {
      const Deadline deadline =
          Deadline::After(std::chrono::nanoseconds(timeout));
      EXPECT_TRUE(absl::IsDeadlineExceeded(cond_.Wait(mutex_, deadline)));
      EXPECT_TRUE(deadline.passed());
      EXPECT_TRUE(mutex_.HeldByCaller());
    }
  });
  EXPECT_TRUE(waiter.Join().ok());
  for (const Deadline deadline :
       {Deadline::AtMonotonicNanos(INT64_MAX - 1),
        Deadline::After(std::chrono::nanoseconds(INT64_MAX)),
        Deadline::After(std::chrono::hours::max())}) {
    const ThreadHandle sleeper = Start("", [&] {
      MutexLock lock(mutex_);
      EXPECT_TRUE(IsInterrupted(cond_.Wait(mutex_, deadline)));
    });
    AwaitWaiters(1);
    EXPECT_TRUE(sleeper.Interrupt());
    EXPECT_TRUE(sleeper.Join().ok());
  }
}

TEST_F(CondVarTest, SignalsDoNotEndItIncidentH3) {
  testing::CountUserSignals();
  std::atomic<pid_t> tid{0};
  std::atomic<bool> returned{false};
  const ThreadHandle waiter = Start("", [&] {
    ManagedScope managed;
    tid.store(Thread::CurrentOrDie().tid());
    MutexLock lock(mutex_);
    EXPECT_TRUE(cond_.Wait(mutex_).ok());
    returned.store(true);
  });
  AwaitWaiters(1);
  testing::BombardSleeper(tid.load(), Rounds(500));
  EXPECT_FALSE(returned.load());
  cond_.NotifyOne();
  EXPECT_TRUE(waiter.Join().ok());
}

TEST_F(CondVarTest, WithoutTheMutexItDies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    cond_.WaitUninterruptibly(mutex_);
  };
  EXPECT_DIES_SAYING(wait(), "needs the mutex to be owned by the caller");
}

class CondVarStressTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(CondVarStressTest);

// Lost once, it hangs (incident H1).
TEST_P(CondVarStressTest, PingPongUnderStops) {
  Mutex mutex;
  CondVar cond;
  int turn = 0;
  const int rounds = Rounds(2000);
  std::atomic<bool> over{false};
  const auto play = [&](int self) {
    ManagedScope managed;
    for (int i = 0; i < rounds; ++i) {
      MutexLock lock(mutex);
      EXPECT_TRUE(cond.Await(mutex, [&] { return turn == self; }).ok());
      turn = 1 - self;
      cond.NotifyOne();
    }
    over.store(true);
  };
  const ThreadHandle one = StartOrFail(runtime(), "", [&] { play(0); });
  const ThreadHandle two = StartOrFail(runtime(), "", [&] { play(1); });
  while (!over.load()) {
    EXPECT_TRUE(runtime().AtSafepoint("stop", [](World&) {}).ok());
  }
  EXPECT_TRUE(one.Join().ok());
  EXPECT_TRUE(two.Join().ok());
}

// A bounded queue of tickets: a wait that ended by an interrupt or a deadline
// has not used up a notification, or somebody would wait for ever.
TEST_P(CondVarStressTest, InterruptsAndDeadlinesUseUpNoNotification) {
  Mutex mutex;
  CondVar cond;
  int available = 0;
  const int total = Rounds(3000);
  std::atomic<int> taken{0};
  const auto consume = [&](bool impatient) {
    ManagedScope managed;
    MutexLock lock(mutex);
    while (taken.load() < total) {
      if (available > 0) {
        --available;
        taken.fetch_add(1);
        continue;
      }
      const absl::Status waited = cond.Wait(
          mutex, impatient ? Deadline::After(std::chrono::microseconds(20))
                           : Deadline::Infinite());
      EXPECT_TRUE(waited.ok() || IsInterrupted(waited) ||
                  absl::IsDeadlineExceeded(waited));
    }
    cond.NotifyAll();
  };
  const ThreadHandle threads[] = {
      StartOrFail(runtime(), "", [&] { consume(false); }),
      StartOrFail(runtime(), "", [&] { consume(true); }),
      StartOrFail(runtime(), "", [&] { consume(true); }),
  };
  for (int i = 0; i < total; ++i) {
    {
      MutexLock lock(mutex);
      ++available;
    }
    cond.NotifyOne();
    if (i % 7 == 0) threads[1].Interrupt();
    if (i % 50 == 0) {
      EXPECT_TRUE(runtime().AtSafepoint("stop", [](World&) {}).ok());
    }
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(taken.load(), total);
}

// Whoever was notified does not touch it any more.
TEST_P(CondVarStressTest, ItsMemoryMayGoWhenAllAreNotified) {
  for (int i = 0; i < Rounds(300); ++i) {
    Mutex mutex;
    auto cond = std::make_unique<CondVar>();
    bool notified = false;
    const ThreadHandle waiter = StartOrFail(runtime(), "", [&] {
      ManagedScope managed;
      MutexLock lock(mutex);
      // It is gone once this is notified.
      while (!notified) EXPECT_TRUE(cond->Wait(mutex).ok());
    });
    {
      MutexLock lock(mutex);
      notified = true;
      cond->NotifyAll();
      cond = nullptr;
      (void)mutex;
    }
    EXPECT_TRUE(waiter.Join().ok());
  }
}

}  // namespace
}  // namespace stillpoint
