// All of it between green threads, and between green and native ones.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "tests/base/sanitizers.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Rounds;
using testing::StartGreenOrFail;
using testing::StartOrFail;

class GreenSyncTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(GreenSyncTest);

TEST_P(GreenSyncTest, OneMutexForAllKinds) {
  Mutex mutex;
  int64_t guarded = 0;
  const int rounds = Rounds(500);
  const auto body = [&] {
    for (int i = 0; i < rounds; ++i) {
      MutexLock lock(mutex);
      EXPECT_TRUE(mutex.HeldByCaller());
      ++guarded;
      if (i % 16 != 0) continue;
      EXPECT_TRUE(Sleep(std::chrono::microseconds(1)).ok());
    }
  };
  const auto managed = [&] {
    ManagedScope managed;
    body();
  };
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "", managed));
    threads.push_back(StartGreenOrFail(runtime(), "", body));
  }
  threads.push_back(StartOrFail(runtime(), "", managed));
  std::thread unattached(body);
  for (int i = 0; i < 50; ++i) testing::StopAndCheck(runtime(), canary());
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  unattached.join();
  EXPECT_EQ(guarded, int64_t{10} * rounds);
}

TEST_P(GreenSyncTest, ChannelsFromHandToHand) {
  const int rounds = Rounds(2000);
  for (const bool native : {false, true}) {
    Channel<int64_t*> there;
    Channel<int64_t*> back;
    const auto echo = [&] {
      ManagedScope managed;
      while (true) {
        const absl::StatusOr<int64_t*> ball = there.Receive();
        if (!ball.ok()) return;
        ++**ball;
        EXPECT_TRUE(back.Send(*ball).ok());
      }
    };
    const ThreadHandle echoing = native ? StartOrFail(runtime(), "", echo)
                                        : StartGreenOrFail(runtime(), "", echo);
    const ThreadHandle calling = StartGreenOrFail(runtime(), "", [&] {
      ManagedScope managed;
      int64_t ball = 0;
      for (int i = 0; i < rounds; ++i) {
        EXPECT_TRUE(there.Send(&ball).ok());
        EXPECT_EQ(*back.Receive(), &ball);
        ++ball;
      }
      EXPECT_EQ(ball, int64_t{2} * rounds);
      there.Close();
    });
    for (int i = 0; i < 20; ++i) testing::StopAndCheck(runtime(), canary());
    EXPECT_TRUE(calling.Join().ok());
    EXPECT_TRUE(echoing.Join().ok());
  }
}

// A tree of green threads that count to each other; who has no partner yet
// waits in a select with a deadline.
TEST_P(GreenSyncTest, ManyWithSelectsAndAWaitGroup) {
  constexpr int kThreads = 100;
  Channel<int> numbers(8);
  Channel<int> others;
  WaitGroup group(kThreads);
  Semaphore permits(3);
  std::atomic<int> inside{0};
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "", [&, i] {
      ManagedScope managed;
      EXPECT_TRUE(permits.Acquire().ok());
      EXPECT_LE(inside.fetch_add(1), 2);
      Poll();
      inside.fetch_sub(1);
      permits.Release();
      int value = i;
      SendCase<int> to_numbers(&numbers, value);
      SendCase<int> to_others(&others, value);
      SelectCase* const cases[] = {&to_numbers, &to_others};
      while (true) {
        const absl::StatusOr<size_t> chosen =
            Select(cases, Deadline::After(std::chrono::microseconds(50)));
        if (chosen.ok()) break;
        EXPECT_TRUE(absl::IsDeadlineExceeded(chosen.status()));
      }
      group.Done();
    }));
  }
  int sum = 0;
  const ThreadHandle receiver = StartGreenOrFail(runtime(), "", [&] {
    for (int i = 0; i < kThreads; ++i) {
      std::optional<int> value;
      ReceiveCase<int> from_numbers(&numbers, value);
      ReceiveCase<int> from_others(&others, value);
      SelectCase* const cases[] = {&from_numbers, &from_others};
      EXPECT_TRUE(Select(cases).ok());
      sum += *value;
    }
    EXPECT_TRUE(group.Wait().ok());
  });
  EXPECT_TRUE(group.Wait().ok());
  EXPECT_TRUE(receiver.Join().ok());
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(sum, kThreads * (kThreads - 1) / 2);
}

// More than one batch, some of whom give up just then.
TEST_P(GreenSyncTest, ClosingWakesMany) {
  constexpr int kThreads = 60;
  for (int round = 0; round < Rounds(20); ++round) {
    Channel<int> a;
    Channel<int> b;
    std::atomic<int> begun{0};
    std::vector<ThreadHandle> threads;
    for (int i = 0; i < kThreads; ++i) {
      const Deadline deadline =
          i % 2 == 0 ? Deadline::Infinite()
                     : Deadline::After(std::chrono::microseconds(i * 20));
      threads.push_back(StartGreenOrFail(runtime(), "", [&, i, deadline] {
        ManagedScope managed;
        begun.fetch_add(1);
        if (i % 3 != 0) {
          const absl::Status status = a.Receive(deadline).status();
          EXPECT_TRUE(IsClosed(status) || absl::IsDeadlineExceeded(status));
          return;
        }
        std::optional<int> into;
        ReceiveCase<int> from_a(&a, into);
        ReceiveCase<int> from_b(&b, into);
        SelectCase* const cases[] = {&from_a, &from_b};
        const absl::StatusOr<size_t> chosen = Select(cases, deadline);
        EXPECT_TRUE(absl::IsDeadlineExceeded(chosen.status()) ||
                    (*chosen == 0 && from_a.closed()));
      }));
    }
    while (begun.load() < kThreads) {
      EXPECT_TRUE(Sleep(std::chrono::microseconds(10)).ok());
    }
    EXPECT_TRUE(a.Close());
    for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
    EXPECT_TRUE(b.Close());
  }
}

TEST_P(GreenSyncTest, InterruptsEndWaits) {
  Mutex mutex;
  CondVar cond;
  std::atomic<int> ended{0};
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 10; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "", [&] {
      ManagedScope managed;
      MutexLock lock(mutex);
      EXPECT_TRUE(IsInterrupted(cond.Wait(mutex)));
      EXPECT_TRUE(mutex.HeldByCaller());
      ended.fetch_add(1);
    }));
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Interrupt());
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(ended.load(), 10);
}

}  // namespace
}  // namespace stillpoint
