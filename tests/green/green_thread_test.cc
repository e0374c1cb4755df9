// Green threads do what native ones do: the same life, the same waits, the same
// stops.

#include <atomic>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "tests/base/sanitizers.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::Rounds;
using testing::RuntimeTest;
using testing::StartGreenOrFail;
using testing::StartOrFail;

class GreenThreadTest : public RuntimeTest {};

TEST_P(GreenThreadTest, RunsItsBodyAndEnds) {
  std::atomic<bool> ran{false};
  const ThreadHandle thread = StartGreenOrFail(runtime(), "one", [&] {
    Thread& self = Thread::CurrentOrDie();
    EXPECT_EQ(self.kind(), ThreadKind::kGreen);
    EXPECT_EQ(self.name(), "one");
    EXPECT_NE(self.tid(), 0);
    EXPECT_EQ(self.state(), ThreadState::kNative);
    ran.store(true);
  });
  ASSERT_TRUE(thread.Join().ok());
  EXPECT_TRUE(ran.load());
  EXPECT_FALSE(thread.alive());
  EXPECT_EQ(runtime().ThreadCount(), 0u);
}

TEST_P(GreenThreadTest, StartsAndJoinsOthers) {
  constexpr int kThreads = 100;
  std::atomic<int> sum{0};
  const ThreadHandle parent = StartGreenOrFail(runtime(), "parent", [&] {
    std::vector<ThreadHandle> children;
    for (int i = 0; i < kThreads; ++i) {
      children.push_back(
          StartGreenOrFail(runtime(), "", [&, i] { sum.fetch_add(i); }));
    }
    for (const ThreadHandle& child : children) EXPECT_TRUE(child.Join().ok());
    EXPECT_EQ(sum.load(), kThreads * (kThreads - 1) / 2);
  });
  ASSERT_TRUE(parent.Join().ok());
}

TEST_P(GreenThreadTest, ParksUntilItGetsAPermit) {
  std::atomic<int> parked{0};
  std::atomic<int> woken{0};
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 10; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "parker", [&] {
      ManagedScope managed;
      parked.fetch_add(1);
      EXPECT_TRUE(Park().ok());
      woken.fetch_add(1);
    }));
  }
  Await([&] { return parked.load() == 10; });
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Unpark());
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(woken.load(), 10);
}

TEST_P(GreenThreadTest, AnInterruptAndADeadlineEndAWait) {
  std::atomic<bool> begun{false};
  const ThreadHandle interrupted = StartGreenOrFail(runtime(), "long", [&] {
    begun.store(true);
    EXPECT_TRUE(absl::IsCancelled(Park()));
  });
  const ThreadHandle late = StartGreenOrFail(runtime(), "short", [&] {
    EXPECT_TRUE(absl::IsDeadlineExceeded(
        Park(Deadline::After(std::chrono::milliseconds(2)))));
    EXPECT_TRUE(Sleep(std::chrono::milliseconds(2)).ok());
    EXPECT_TRUE(Sleep(std::chrono::nanoseconds(-1)).ok());
  });
  Await([&] { return begun.load(); });
  EXPECT_TRUE(interrupted.Interrupt());
  EXPECT_TRUE(interrupted.Join().ok());
  EXPECT_TRUE(late.Join().ok());
}

TEST_P(GreenThreadTest, ManyTimersFireInOrder) {
  std::vector<ThreadHandle> threads;
  std::atomic<int> fired{0};
  for (int i = 0; i < 200; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "sleeper", [&, i] {
      const int64_t until = MonotonicNanos() + (i * 7919 % 200) * 50'000;
      EXPECT_TRUE(Sleep(Deadline::AtMonotonicNanos(until)).ok());
      EXPECT_GE(MonotonicNanos(), until);
      fired.fetch_add(1);
    }));
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(fired.load(), 200);
}

TEST_P(GreenThreadTest, HasNoTimerSlackOfItsOwnButSleepsExactly) {
  const ThreadHandle thread = StartGreenOrFail(runtime(), "exact", [] {
    EXPECT_TRUE(absl::IsFailedPrecondition(
        SetCurrentTimerSlack(std::chrono::nanoseconds(1))));
    for (int i = 0; i < 10; ++i) {
      const int64_t until = MonotonicNanos() + 200'000;
      EXPECT_TRUE(SleepPrecise(Deadline::AtMonotonicNanos(until)).ok());
      EXPECT_GE(MonotonicNanos(), until);
    }
  });
  EXPECT_TRUE(thread.Join().ok());
  ThreadOptions options;
  options.kind = ThreadKind::kGreen;
  options.timer_slack = std::chrono::nanoseconds(1);
  EXPECT_TRUE(absl::IsInvalidArgument(
      runtime().Start(std::move(options), [] {}).status()));
}

TEST_P(GreenThreadTest, YieldGivesTheOthersATurn) {
  Options options = testing::TestOptions(GetParam());
  options.carriers = 1;
  options.extra_carriers = 0;
  // Whose time slice is over yields once more.
  options.time_slice = std::chrono::seconds(10);
  Make(options);
  std::vector<int> turns;
  std::atomic<int> go{0};
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 3; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "turn", [&, i] {
      ManagedScope managed;
      go.fetch_add(1);
      while (go.load() < 3) Yield();
      for (int turn = 0; turn < 10; ++turn) {
        turns.push_back(i);
        Yield();
      }
    }));
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  ASSERT_EQ(turns.size(), 30u);
  // On one carrier, first in, first out: nobody runs twice before the others.
  for (size_t i = 3; i < 24; ++i) EXPECT_NE(turns[i], turns[i - 1]) << i;
}

// Fairness: more spinners than carriers, none of which yields of itself.
TEST_P(GreenThreadTest, ThreadsThatPollShareTheCarriers) {
  Options options = testing::TestOptions(GetParam());
  options.carriers = 1;
  options.extra_carriers = 0;
  options.time_slice = std::chrono::milliseconds(1);
  Make(options);
  constexpr int kThreads = 3;
  std::atomic<int> seen_by_all{0};
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "spinner", [&] {
      Thread& self = Thread::CurrentOrDie();
      ManagedScope managed(self);
      seen_by_all.fetch_add(1);
      while (seen_by_all.load() < kThreads) Poll(self);
    }));
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
}

TEST_P(GreenThreadTest, StopsWithTheWorld) {
  std::atomic<bool> stop{false};
  std::atomic<int> running{0};
  std::vector<ThreadHandle> threads;
  constexpr int kThreads = 20;
  std::vector<int> unprotected(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "mutator", [&, i] {
      Thread& self = Thread::CurrentOrDie();
      ManagedScope managed(self);
      running.fetch_add(1);
      int round = 0;
      while (!stop.load()) {
        {
          const StopCanary::Work work(canary());
          for (int j = 0; j < 100; ++j) unprotected[i] = j;
        }
        if (++round % 3 == i % 3) Yield();
        Poll(self);
      }
    }));
  }
  Await([&] { return running.load() == kThreads; });
  for (int i = 0; i < Rounds(300); ++i) {
    ASSERT_TRUE(runtime()
                    .AtSafepoint("look",
                                 [&](World& world) {
                                   canary().Check();
                                   for (int& value : unprotected) value = -1;
                                   EXPECT_EQ(world.thread_count(),
                                             static_cast<size_t>(kThreads));
                                 })
                    .ok());
  }
  stop.store(true);
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
}

STILLPOINT_IN_ALL_CONFIGURATIONS(GreenThreadTest);

}  // namespace
}  // namespace stillpoint
