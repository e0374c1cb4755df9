// The primitives of sync/, with native and green threads at both ends.

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "runtime/sync/channel.h"
#include "runtime/sync/cond_var.h"
#include "runtime/sync/mutex.h"
#include "runtime/sync/wait_group.h"
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

class GreenSyncTest : public RuntimeTest {
 protected:
  // Green and native by turns, Managed and Native by turns.
  ThreadHandle Start(int i, absl::AnyInvocable<void()> body) {
    auto run = [managed = i % 4 < 2, body = std::move(body)]() mutable {
      if (!managed) return body();
      ManagedScope scope;
      body();
    };
    return i % 2 == 0 ? StartGreenOrFail(runtime(), "green", std::move(run))
                      : StartOrFail(runtime(), "native", std::move(run));
  }
};

TEST_P(GreenSyncTest, AMutexExcludesBothKinds) {
  constexpr int kThreads = 8;
  const int rounds = Rounds(2000);
  Mutex mutex;
  int unprotected = 0;
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(Start(i, [&] {
      for (int round = 0; round < rounds; ++round) {
        const MutexLock lock(mutex);
        ++unprotected;
        // So that others find it taken, also on the same carrier.
        if (round % 16 == 0) Yield();
      }
    }));
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(unprotected, kThreads * rounds);
}

TEST_P(GreenSyncTest, AChannelCarriesEachValueOnce) {
  constexpr int kSenders = 4;
  constexpr int kReceivers = 4;
  const int rounds = Rounds(2000);
  for (const size_t capacity : {size_t{0}, size_t{3}}) {
    Channel<int> channel(capacity);
    std::atomic<int64_t> sum{0};
    std::atomic<int> received{0};
    std::vector<ThreadHandle> senders;
    std::vector<ThreadHandle> receivers;
    for (int i = 0; i < kReceivers; ++i) {
      receivers.push_back(Start(i, [&] {
        while (true) {
          absl::StatusOr<int> value = channel.Receive();
          if (!value.ok()) break;
          sum.fetch_add(*value);
          received.fetch_add(1);
        }
      }));
    }
    for (int i = 0; i < kSenders; ++i) {
      senders.push_back(Start(i + 1, [&] {
        for (int round = 1; round <= rounds; ++round) {
          EXPECT_TRUE(channel.Send(round).ok());
        }
      }));
    }
    for (const ThreadHandle& sender : senders) EXPECT_TRUE(sender.Join().ok());
    channel.Close();
    for (const ThreadHandle& thread : receivers) {
      EXPECT_TRUE(thread.Join().ok());
    }
    EXPECT_EQ(received.load(), kSenders * rounds);
    EXPECT_EQ(sum.load(),
              int64_t{kSenders} * rounds * (int64_t{rounds} + 1) / 2);
  }
}

TEST_P(GreenSyncTest, ACondVarAndAWaitGroupLetBothKindsGo) {
  constexpr int kThreads = 8;
  Mutex mutex;
  CondVar changed;
  int waiting = 0;
  bool go = false;
  WaitGroup done(kThreads);
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(Start(i, [&] {
      {
        const MutexLock lock(mutex);
        ++waiting;
        changed.NotifyAll();
        while (!go) EXPECT_TRUE(changed.Wait(mutex).ok());
      }
      done.Done();
    }));
  }
  const ThreadHandle conductor = Start(0, [&] {
    {
      const MutexLock lock(mutex);
      while (waiting < kThreads) EXPECT_TRUE(changed.Wait(mutex).ok());
      go = true;
      changed.NotifyAll();
    }
    EXPECT_TRUE(done.Wait().ok());
  });
  EXPECT_TRUE(conductor.Join().ok());
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
}

// Each wait of a green thread counts as stopped, ends by an interrupt, and by
// its deadline.
TEST_P(GreenSyncTest, AWaitIsSafeInterruptibleAndHasADeadline) {
  Channel<int> to_nobody;
  Channel<int> from_nobody;
  Mutex mutex;
  std::atomic<bool> owned{false};
  std::atomic<bool> release{false};
  const ThreadHandle owner = StartOrFail(runtime(), "owner", [&] {
    const MutexLock lock(mutex);
    owned.store(true);
    Await([&] { return release.load(); });
  });
  Await([&] { return owned.load(); });
  std::vector<ThreadHandle> waiters;
  std::atomic<int> begun{0};
  const auto wait_for = [&](auto wait) {
    waiters.push_back(StartGreenOrFail(runtime(), "waiter", [&begun, wait] {
      ManagedScope managed;
      EXPECT_TRUE(absl::IsDeadlineExceeded(
          wait(Deadline::After(std::chrono::milliseconds(1)))));
      begun.fetch_add(1);
      EXPECT_TRUE(absl::IsCancelled(wait(Deadline::Infinite())));
    }));
  };
  wait_for(
      [&](Deadline deadline) { return mutex.LockInterruptibly(deadline); });
  wait_for([&](Deadline deadline) { return to_nobody.Send(1, deadline); });
  wait_for([&](Deadline deadline) {
    return from_nobody.Receive(deadline).status();
  });
  Await([&] { return begun.load() == static_cast<int>(waiters.size()); });
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(runtime().AtSafepoint("while they wait", [](World&) {}).ok());
  }
  for (const ThreadHandle& waiter : waiters) {
    EXPECT_TRUE(waiter.Interrupt());
  }
  for (const ThreadHandle& waiter : waiters) EXPECT_TRUE(waiter.Join().ok());
  release.store(true);
  EXPECT_TRUE(owner.Join().ok());
}

STILLPOINT_IN_ALL_CONFIGURATIONS(GreenSyncTest);

}  // namespace
}  // namespace stillpoint
