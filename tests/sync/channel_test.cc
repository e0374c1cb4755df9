// Channel: order, capacity, closing, what values may be, what ends a wait.

#include "runtime/sync/channel.h"

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/stillpoint.h"
#include "tests/base/death.h"
#include "tests/base/sanitizers.h"
#include "tests/os/thread_watch.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::AwaitState;
using testing::Rounds;
using testing::StartOrFail;

constexpr Deadline kPast = Deadline::AtMonotonicNanos(0);
constexpr LockRank kRank{"Test_lock", kFirstEmbedderRank, "test"};

class ChannelTest : public ::testing::Test {
 protected:
  ThreadHandle Start(std::string_view name, std::function<void()> body) {
    return StartOrFail(*runtime_, name, std::move(body));
  }
  void OnThread(std::function<void()> body) {
    EXPECT_TRUE(Start("", std::move(body)).Join().ok());
  }
  // Until the thread of that name waits at `channel`.
  void AwaitAt(const ThreadHandle& thread, const void* channel) {
    Await([&] {
      return thread.slot()->waiting_for() ==
                 WaitingFor(WaitKind::kChannel, channel) &&
             thread.slot()->state() == ThreadState::kBlocked;
    });
  }

  const std::unique_ptr<Runtime> runtime_ = testing::MakeRuntime();
};

TEST_F(ChannelTest, ABufferKeepsOrderAndItsCapacity) {
  Channel<int> channel(3);
  EXPECT_EQ(channel.capacity(), 3u);
  std::optional<int> value;
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(channel.TryReceive(value), ChannelResult::kWouldWait);
    EXPECT_FALSE(value.has_value());
    EXPECT_TRUE(channel.Send(1).ok());
    EXPECT_TRUE(channel.Send(2, kPast).ok());
    EXPECT_EQ(channel.TrySend(3), ChannelResult::kOk);
    EXPECT_EQ(channel.TrySend(4), ChannelResult::kWouldWait);
    EXPECT_EQ(channel.size(), 3u);
    EXPECT_EQ(*channel.Receive(), 1);
    EXPECT_TRUE(channel.Send(4).ok());
    EXPECT_EQ(*channel.Receive(), 2);
    EXPECT_EQ(channel.TryReceive(value), ChannelResult::kOk);
    EXPECT_EQ(value, 3);
    EXPECT_EQ(*channel.Receive(kPast), 4);
  }
}

TEST_F(ChannelTest, WithoutABufferASendWaitsForItsReceive) {
  Channel<int> channel;
  EXPECT_EQ(channel.TrySend(1), ChannelResult::kWouldWait);
  std::atomic<bool> sent{false};
  const ThreadHandle sender = Start("", [&] {
    ManagedScope managed;
    EXPECT_TRUE(channel.Send(7).ok());
    sent.store(true);
  });
  AwaitAt(sender, &channel);
  EXPECT_FALSE(sent.load());
  EXPECT_EQ(channel.size(), 0u);
  EXPECT_EQ(*channel.Receive(), 7);
  EXPECT_TRUE(sender.Join().ok());
  // The other way round.
  const ThreadHandle receiver = Start("", [&] {
    ManagedScope managed;
    EXPECT_EQ(*channel.Receive(), 8);
  });
  AwaitAt(receiver, &channel);
  EXPECT_EQ(channel.TrySend(8), ChannelResult::kOk);
  EXPECT_TRUE(receiver.Join().ok());
}

TEST_F(ChannelTest, BlockedSendersMoveUpInTheirOrder) {
  Channel<int> channel(1);
  EXPECT_TRUE(channel.Send(0).ok());
  std::vector<ThreadHandle> senders;
  for (int i = 1; i <= 3; ++i) {
    senders.push_back(Start("", [&, i] { EXPECT_TRUE(channel.Send(i).ok()); }));
    AwaitAt(senders.back(), &channel);
  }
  for (int i = 0; i <= 3; ++i) EXPECT_EQ(*channel.Receive(), i);
  for (const ThreadHandle& sender : senders) EXPECT_TRUE(sender.Join().ok());
}

TEST_F(ChannelTest, AClosedOneIsDrained) {
  Channel<int> channel(2);
  EXPECT_TRUE(channel.Send(1).ok());
  EXPECT_TRUE(channel.Send(2).ok());
  EXPECT_FALSE(channel.closed());
  EXPECT_TRUE(channel.Close());
  EXPECT_FALSE(channel.Close());
  EXPECT_TRUE(channel.closed());
  EXPECT_TRUE(IsClosed(channel.Send(3)));
  EXPECT_EQ(channel.TrySend(3), ChannelResult::kClosed);
  EXPECT_EQ(*channel.Receive(), 1);
  std::optional<int> value;
  EXPECT_EQ(channel.TryReceive(value), ChannelResult::kOk);
  EXPECT_EQ(value, 2);
  EXPECT_EQ(channel.TryReceive(value), ChannelResult::kClosed);
  EXPECT_FALSE(value.has_value());
  const absl::StatusOr<int> none = channel.Receive();
  EXPECT_TRUE(IsClosed(none.status())) << none.status();
}

TEST_F(ChannelTest, ClosingWakesAllThatWait) {
  constexpr int kThreads = 40;  // several batches
  Channel<int> empty;
  Channel<int> full(1);
  EXPECT_TRUE(full.Send(0).ok());
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(
        Start("", [&] { EXPECT_TRUE(IsClosed(empty.Receive().status())); }));
    AwaitAt(threads.back(), &empty);
    threads.push_back(Start("", [&] {
      ManagedScope managed;
      EXPECT_TRUE(IsClosed(full.Send(1)));
    }));
    AwaitAt(threads.back(), &full);
  }
  EXPECT_TRUE(empty.Close());
  EXPECT_TRUE(full.Close());
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(*full.Receive(), 0);  // theirs are not sent
  EXPECT_TRUE(IsClosed(full.Receive().status()));
}

TEST_F(ChannelTest, MoveOnlyValuesStayWithASenderThatFails) {
  Channel<std::unique_ptr<int>> channel(1);
  auto value = std::make_unique<int>(1);
  EXPECT_TRUE(channel.Send(std::move(value)).ok());
  EXPECT_EQ(value, nullptr);
  value = std::make_unique<int>(2);
  EXPECT_EQ(channel.TrySend(std::move(value)), ChannelResult::kWouldWait);
  EXPECT_TRUE(absl::IsDeadlineExceeded(channel.Send(std::move(value), kPast)));
  ASSERT_NE(value, nullptr);
  EXPECT_TRUE(channel.Close());
  EXPECT_TRUE(IsClosed(channel.Send(std::move(value))));
  ASSERT_NE(value, nullptr);
  EXPECT_EQ(*value, 2);
  absl::StatusOr<std::unique_ptr<int>> received = channel.Receive();
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(**received, 1);
}

// Each value is made and destroyed once, moves included.
TEST_F(ChannelTest, EveryValueIsDestroyed) {
  static std::atomic<int> alive;
  struct Counted {
    Counted() { alive.fetch_add(1); }
    Counted(Counted&&) noexcept { alive.fetch_add(1); }
    ~Counted() { alive.fetch_sub(1); }
  };
  alive.store(0);
  {
    Channel<Counted> channel(3);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(channel.Send(Counted()).ok());
    EXPECT_TRUE(channel.Receive().ok());
    EXPECT_TRUE(channel.Send(Counted()).ok());
    std::optional<Counted> value;
    EXPECT_EQ(channel.TryReceive(value), ChannelResult::kOk);
    EXPECT_EQ(alive.load(), 3);
  }
  EXPECT_EQ(alive.load(), 0);
  Channel<Counted> channel;
  const ThreadHandle sender = Start("", [&] {
    EXPECT_TRUE(channel.Send(Counted()).ok());
    EXPECT_FALSE(channel.Send(Counted()).ok());
  });
  EXPECT_TRUE(channel.Receive().ok());
  channel.Close();
  EXPECT_TRUE(sender.Join().ok());
  EXPECT_EQ(alive.load(), 0);
}

TEST_F(ChannelTest, UnattachedThreadsUseItAsWell) {
  Channel<int> there;
  Channel<int> back;
  std::thread echo([&] {
    while (true) {
      const absl::StatusOr<int> value = there.Receive();
      if (!value.ok()) return;
      EXPECT_TRUE(back.Send(*value + 1).ok());
    }
  });
  OnThread([&] {
    ManagedScope managed;
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(there.Send(i).ok());
      EXPECT_EQ(*back.Receive(), i + 1);
    }
  });
  there.Close();
  echo.join();
}

TEST_F(ChannelTest, AnInterruptEndsAWaitAndIsTaken) {
  Channel<int> channel;
  const ThreadHandle waiter = Start("", [&] {
    ManagedScope managed;
    EXPECT_TRUE(IsInterrupted(channel.Receive().status()));
    EXPECT_FALSE(Thread::CurrentOrDie().interrupted());
    // One that is pending.
    EXPECT_TRUE(CurrentThreadHandle().Interrupt());
    EXPECT_TRUE(IsInterrupted(channel.Send(1)));
    EXPECT_FALSE(Thread::CurrentOrDie().interrupted());
  });
  AwaitAt(waiter, &channel);
  EXPECT_TRUE(waiter.Interrupt());
  EXPECT_TRUE(waiter.Join().ok());
  // What is ready comes first.
  OnThread([] {
    Channel<int> buffered(1);
    EXPECT_TRUE(CurrentThreadHandle().Interrupt());
    EXPECT_TRUE(buffered.Send(1).ok());
    EXPECT_TRUE(buffered.Receive().ok());
    EXPECT_TRUE(Thread::CurrentOrDie().ConsumeInterrupt());
  });
}

TEST_F(ChannelTest, DeadlinesOfAllKindsIncidentH4) {
  Channel<int> channel;
  OnThread([&] {
    for (const int64_t timeout :
         {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{999'999'999},
          int64_t{1'000'000'000}}) {
      const Deadline deadline =
          Deadline::After(std::chrono::nanoseconds(timeout));
      EXPECT_TRUE(absl::IsDeadlineExceeded(channel.Receive(deadline).status()));
      EXPECT_TRUE(deadline.passed());
      EXPECT_TRUE(absl::IsDeadlineExceeded(channel.Send(1, deadline)));
    }
  });
  for (const Deadline deadline :
       {Deadline::Infinite(), Deadline::AtMonotonicNanos(INT64_MAX - 1),
        Deadline::After(std::chrono::nanoseconds(INT64_MAX)),
        Deadline::After(std::chrono::hours::max())}) {
    const ThreadHandle sleeper = Start("", [&] {
      EXPECT_TRUE(IsInterrupted(channel.Receive(deadline).status()));
    });
    AwaitAt(sleeper, &channel);
    testing::AwaitSleeping(sleeper.slot()->tid());  // it does not spin
    EXPECT_TRUE(sleeper.Interrupt());
    EXPECT_TRUE(sleeper.Join().ok());
  }
}

TEST_F(ChannelTest, SignalsDoNotEndAWaitIncidentH3) {
  testing::CountUserSignals();
  Channel<int> channel;
  std::atomic<bool> returned{false};
  const ThreadHandle waiter = Start("", [&] {
    ManagedScope managed;
    EXPECT_EQ(*channel.Receive(), 1);
    returned.store(true);
  });
  AwaitAt(waiter, &channel);
  testing::BombardSleeper(waiter.slot()->tid(), Rounds(500));
  EXPECT_FALSE(returned.load());
  EXPECT_TRUE(channel.Send(1).ok());
  EXPECT_TRUE(waiter.Join().ok());
}

TEST_F(ChannelTest, ACollectorVisitsValuesOnTheirWay) {
  Channel<int*> channel(2);
  int old_objects[3] = {1, 2, 3};
  int new_objects[3] = {1, 2, 3};
  const ThreadHandle sender = Start("", [&] {
    ManagedScope managed;
    for (int& object : old_objects) EXPECT_TRUE(channel.Send(&object).ok());
  });
  AwaitAt(sender, &channel);
  EXPECT_TRUE(runtime_
                  ->AtSafepoint("move",
                                [&](World&) {
                                  int next = 0;
                                  channel.ForEachValue([&](int*& value) {
                                    EXPECT_EQ(value, &old_objects[next]);
                                    value = &new_objects[next++];
                                  });
                                  EXPECT_EQ(next, 3);
                                })
                  .ok());
  for (int& object : new_objects) EXPECT_EQ(*channel.Receive(), &object);
  EXPECT_TRUE(sender.Join().ok());
}

TEST_F(ChannelTest, WhereItMayNotWaitItSaysSoAndTryWorks) {
  Channel<int> channel(1);
  RankedMutex ranked(kRank);
  const auto check = [&] {
    EXPECT_TRUE(absl::IsFailedPrecondition(channel.Send(1)));
    EXPECT_TRUE(absl::IsFailedPrecondition(channel.Receive().status()));
    EXPECT_EQ(channel.TrySend(1), ChannelResult::kOk);
    std::optional<int> value;
    EXPECT_EQ(channel.TryReceive(value), ChannelResult::kOk);
  };
  EXPECT_TRUE(runtime_->AtSafepoint("op", [&](World&) { check(); }).ok());
  OnThread([&] {
    const NoSafepointScope no_safepoint;
    check();
  });
  OnThread([&] {
    RankedMutexLock lock(ranked);
    EXPECT_TRUE(absl::IsFailedPrecondition(channel.Receive().status()));
  });
  const ThreadHandle target =
      Start("", [&] { EXPECT_TRUE(IsInterrupted(Park())); });
  EXPECT_TRUE(
      runtime_->Handshake(target, "try", [&](Thread&) { check(); }).ok());
  EXPECT_TRUE(target.Interrupt());
  EXPECT_TRUE(target.Join().ok());
}

TEST_F(ChannelTest, DestroyedWithAWaiterItDies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DIES_SAYING(
      {
        auto channel = std::make_unique<Channel<int>>();
        const ThreadHandle waiter =
            Start("", [&] { channel->Receive().status().IgnoreError(); });
        AwaitAt(waiter, channel.get());
        channel = nullptr;
      },
      "a channel is destroyed while a thread waits at it");
}

}  // namespace
}  // namespace stillpoint
