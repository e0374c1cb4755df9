// That the world stops, for whom it does not wait, and that nobody comes in
// while it is stopped.

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/await.h"
#include "tests/support/busy_mutators.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::AwaitState;
using testing::BusyMutators;
using testing::IsInState;
using testing::StartOrFail;
using testing::StopAndCheck;

class StopWorldTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(StopWorldTest);

TEST_P(StopWorldTest, BusyPollersStandStill) {
  BusyMutators busy(runtime(), canary(), 4);
  busy.AwaitProgress();
  uint64_t last = 0;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(runtime()
                    .AtSafepoint("look",
                                 [&](World& world) {
                                   canary().Check();
                                   EXPECT_TRUE(world.stopped());
                                   EXPECT_EQ(world.thread_count(), 4u);
                                   const uint64_t now = busy.UnprotectedSum();
                                   EXPECT_EQ(now, busy.Progress());
                                   EXPECT_GE(now, last);
                                   last = now;
                                 })
                    .ok());
  }
  // And they go on afterwards.
  busy.AwaitProgress();
}

// What an operation writes is seen by the mutators it stopped, and the other
// way round: plain memory, so that TSan and a lost update would both show it.
TEST_P(StopWorldTest, OrdersPlainMemoryBothWays) {
  constexpr int kStops = 50;
  int64_t shared = 0;
  std::atomic<bool> stop{false};
  std::atomic<bool> came_in{false};
  const ThreadHandle mutator = StartOrFail(runtime(), "mutator", [&] {
    ManagedScope managed;
    while (!stop.load(std::memory_order_relaxed)) {
      {
        StopCanary::Work work(canary());
        ++shared;
        --shared;
      }
      came_in.store(true, std::memory_order_relaxed);
      Poll();
    }
  });
  Await([&] { return came_in.load(); });
  for (int i = 0; i < kStops; ++i) {
    ASSERT_TRUE(runtime()
                    .AtSafepoint("write",
                                 [&](World&) {
                                   canary().Check();
                                   ++shared;
                                 })
                    .ok());
  }
  stop.store(true);
  ASSERT_TRUE(mutator.Join().ok());
  EXPECT_EQ(shared, kStops);
}

TEST_P(StopWorldTest, DoesNotWaitForNativeThreads) {
  std::atomic<bool> stop{false};
  std::atomic<bool> in_native{false};
  // One that was never in Managed, and one that left it by a scope.
  const ThreadHandle never = StartOrFail(
      runtime(), "never", [&] { Await([&] { return stop.load(); }); });
  const ThreadHandle left = StartOrFail(runtime(), "left", [&] {
    ManagedScope managed;
    NativeScope native;
    in_native.store(true);
    Await([&] { return stop.load(); });
  });
  Await([&] { return in_native.load(); });
  AwaitState(runtime(), "never", ThreadState::kNative);
  // Neither of them does anything before the stop is over.
  StopAndCheck(runtime(), canary());
  stop.store(true);
  EXPECT_TRUE(never.Join().ok());
  EXPECT_TRUE(left.Join().ok());
}

TEST_P(StopWorldTest, DoesNotWaitForBlockedThreads) {
  std::atomic<bool> stop{false};
  const ThreadHandle thread = StartOrFail(runtime(), "blocked", [&] {
    ManagedScope managed;
    BlockedScope blocked;
    Await([&] { return stop.load(); });
  });
  AwaitState(runtime(), "blocked", ThreadState::kBlocked);
  StopAndCheck(runtime(), canary());
  stop.store(true);
  EXPECT_TRUE(thread.Join().ok());
}

// Incident D5: a transition from safe to running that skips the poll. Each of
// these ways in is taken while the world is stopped, and must not get past the
// check before the stop is over.
enum class WayIn {
  kManagedScope,          // Native -> Managed
  kEndOfNativeScope,      // Managed -> Native -> back
  kEndOfBlockedScope,     // Managed -> Blocked -> back
  kCallback,              // Managed -> Native -> Managed again, inside
  kManagedInsideManaged,  // nested and without effect, then a poll
  kEndOfPark,             // back from a wait of the runtime
};

class WaysInTest : public testing::RuntimeTest {
 protected:
  void TryDuringStop(WayIn way);
};
STILLPOINT_IN_ALL_CONFIGURATIONS(WaysInTest);

void WaysInTest::TryDuringStop(WayIn way) {
  std::atomic<bool> ready{false};
  std::atomic<bool> go{false};
  std::atomic<bool> past_check{false};
  const auto await_go = [&] {
    ready.store(true);
    Await([&] { return go.load(); });
  };
  const auto work = [&] {
    StopCanary::Work working(canary());
    past_check.store(true);
  };
  const ThreadHandle thread = StartOrFail(runtime(), "visitor", [&] {
    switch (way) {
      case WayIn::kManagedScope: {
        await_go();
        ManagedScope managed;
        work();
        break;
      }
      case WayIn::kEndOfNativeScope: {
        ManagedScope managed;
        {
          NativeScope native;
          await_go();
        }
        work();
        break;
      }
      case WayIn::kEndOfBlockedScope: {
        ManagedScope managed;
        {
          BlockedScope blocked;
          await_go();
        }
        work();
        break;
      }
      case WayIn::kCallback: {
        ManagedScope managed;
        NativeScope native;
        await_go();
        ManagedScope callback;
        work();
        break;
      }
      case WayIn::kManagedInsideManaged: {
        await_go();
        ManagedScope managed;
        ManagedScope again;
        Poll();
        work();
        break;
      }
      case WayIn::kEndOfPark: {
        ManagedScope managed;
        ready.store(true);
        EXPECT_TRUE(Park().ok());
        work();
        break;
      }
    }
  });
  Await([&] { return ready.load(); });
  if (way == WayIn::kEndOfPark) {
    AwaitState(runtime(), "visitor", ThreadState::kBlocked);
  }
  ASSERT_TRUE(runtime()
                  .AtSafepoint("hold",
                               [&](World&) {
                                 go.store(true);
                                 thread.Unpark();
                                 // A thread that stepped back is Blocked. (In
                                 // the two ways that wait in Blocked anyway it
                                 // may not have tried yet; then the check below
                                 // proves less, and the other configurations
                                 // and rounds more.)
                                 Await([&] {
                                   return IsInState(runtime(), "visitor",
                                                    ThreadState::kBlocked);
                                 });
                                 for (int i = 0; i < 10; ++i) {
                                   canary().Check();
                                   EXPECT_FALSE(past_check.load());
                                   sched_yield();
                                 }
                               })
                  .ok());
  ASSERT_TRUE(thread.Join().ok());
  EXPECT_TRUE(past_check.load());
}

TEST_P(WaysInTest, ManagedScopeWaits) { TryDuringStop(WayIn::kManagedScope); }
TEST_P(WaysInTest, EndOfNativeScopeWaits) {
  TryDuringStop(WayIn::kEndOfNativeScope);
}
TEST_P(WaysInTest, EndOfBlockedScopeWaits) {
  TryDuringStop(WayIn::kEndOfBlockedScope);
}
TEST_P(WaysInTest, CallbackFromNativeWaits) { TryDuringStop(WayIn::kCallback); }
TEST_P(WaysInTest, NestedManagedScopeWaits) {
  TryDuringStop(WayIn::kManagedInsideManaged);
}
TEST_P(WaysInTest, EndOfParkWaits) { TryDuringStop(WayIn::kEndOfPark); }

// Incident D5, the same under load: threads that cross the border all the time,
// by nested scopes, against continuous stops.
TEST_P(WaysInTest, CrossingTheBorderAgainstStops) {
  std::atomic<bool> stop{false};
  ThreadHandle threads[3];
  for (ThreadHandle& thread : threads) {
    thread = StartOrFail(runtime(), "crosser", [&] {
      while (!stop.load(std::memory_order_relaxed)) {
        ManagedScope managed;
        { StopCanary::Work work(canary()); }
        {
          NativeScope native;
          {
            ManagedScope callback;
            { StopCanary::Work work(canary()); }
            BlockedScope blocked;
          }
        }
        { StopCanary::Work work(canary()); }
      }
    });
  }
  for (int i = 0; i < 300; ++i) StopAndCheck(runtime(), canary());
  stop.store(true);
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
}

// A thread that is seen in Managed, and becomes safe by a scope instead of a
// poll, ends the stopper's wait, also when the stopper sleeps (finding F2).
TEST_P(StopWorldTest, LeavingByNativeScopeEndsTheStoppersWait) {
  std::atomic<bool> in_managed{false};
  std::atomic<bool> leave{false};
  std::atomic<bool> stop{false};
  std::atomic<bool> stopped{false};
  const ThreadHandle thread = StartOrFail(runtime(), "leaver", [&] {
    ManagedScope managed;
    in_managed.store(true);
    while (!leave.load()) {
    }
    NativeScope native;
    Await([&] { return stop.load(); });
  });
  Await([&] { return in_managed.load(); });
  const ThreadHandle requester = StartOrFail(runtime(), "requester", [&] {
    StopAndCheck(runtime(), canary());
    stopped.store(true);
  });
  AwaitState(runtime(), "requester", ThreadState::kBlocked);
  EXPECT_FALSE(stopped.load());
  leave.store(true);
  EXPECT_TRUE(requester.Join().ok());
  EXPECT_TRUE(stopped.load());
  stop.store(true);
  EXPECT_TRUE(thread.Join().ok());
}

// Incident A4: a loop without a poll delays the stop, and nothing else: the
// stop completes when the loop polls, and everything works afterwards.
TEST_P(StopWorldTest, LoopWithoutPollDelaysTheStopUntilItPolls) {
  std::atomic<bool> in_managed{false};
  std::atomic<bool> poll_now{false};
  std::atomic<bool> polled{false};
  std::atomic<bool> stop{false};
  std::atomic<bool> stopped{false};
  const ThreadHandle spinner = StartOrFail(runtime(), "spinner", [&] {
    ManagedScope managed;
    {
      StopCanary::Work work(canary());
      in_managed.store(true);
      while (!poll_now.load()) {
      }
    }
    polled.store(true);
    while (!stop.load()) Poll();
  });
  Await([&] { return in_managed.load(); });
  const ThreadHandle requester = StartOrFail(runtime(), "requester", [&] {
    const bool ok = runtime()
                        .AtSafepoint("late",
                                     [&](World&) {
                                       canary().Check();
                                       EXPECT_TRUE(polled.load());
                                     })
                        .ok();
    EXPECT_TRUE(ok);
    stopped.store(true);
  });
  AwaitState(runtime(), "requester", ThreadState::kBlocked);
  EXPECT_FALSE(stopped.load());
  poll_now.store(true);
  EXPECT_TRUE(requester.Join().ok());
  for (int i = 0; i < 20; ++i) StopAndCheck(runtime(), canary());
  stop.store(true);
  EXPECT_TRUE(spinner.Join().ok());
}

}  // namespace
}  // namespace stillpoint
