#include "runtime/thread/wait_word.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/os/os_thread.h"
#include "tests/base/sanitizers.h"
#include "tests/os/thread_watch.h"

namespace stillpoint {
namespace {

using testing::AwaitSleeping;
using testing::Rounds;

constexpr uint32_t kAll =
    WaitWord::kPermit | WaitWord::kInterrupt | WaitWord::kEvent;

// Runs one Wait on a thread of its own.
class Waiter {
 public:
  Waiter(WaitWord& word, uint32_t mask,
         Deadline deadline = Deadline::Infinite())
      : thread_([this, &word, mask, deadline] {
          tid_.store(CurrentTid());
          bits_ = word.Wait(mask, deadline);
          returned_.store(true);
        }) {}

  pid_t tid() const {
    while (tid_.load() == 0) sched_yield();
    return tid_.load();
  }
  bool returned() const { return returned_.load(); }
  uint32_t Bits() {
    thread_.join();
    return bits_;
  }

 private:
  std::atomic<pid_t> tid_{0};
  std::atomic<bool> returned_{false};
  uint32_t bits_ = 0;
  std::thread thread_;  // last: it uses the others
};

TEST(WaitWordTest, ABitThatIsSetAlreadyEndsTheWaitAtOnce) {
  WaitWord word;
  word.Set(WaitWord::kPermit);
  EXPECT_EQ(word.Wait(kAll, Deadline::Infinite()), WaitWord::kPermit);
  // Not taken by the wait.
  EXPECT_EQ(word.Wait(kAll, Deadline::Infinite()), WaitWord::kPermit);
  EXPECT_EQ(word.Peek(), WaitWord::kPermit);
  // A passed deadline does not hide it.
  EXPECT_EQ(word.Wait(kAll, Deadline::AtMonotonicNanos(0)), WaitWord::kPermit);
}

TEST(WaitWordTest, BitsDoNotAddUpAndAreTakenOneByOne) {
  WaitWord word;
  word.Set(WaitWord::kPermit);
  word.Set(WaitWord::kPermit | WaitWord::kEvent);
  EXPECT_EQ(word.Take(WaitWord::kInterrupt), 0u);
  EXPECT_EQ(word.Take(WaitWord::kPermit | WaitWord::kInterrupt),
            WaitWord::kPermit);
  EXPECT_EQ(word.Take(WaitWord::kPermit), 0u);
  EXPECT_EQ(word.Peek(), WaitWord::kEvent);
}

TEST(WaitWordTest, ReportsOnlyBitsOfTheMask) {
  WaitWord word;
  word.Set(kAll);
  EXPECT_EQ(word.Wait(WaitWord::kEvent, Deadline::Infinite()),
            WaitWord::kEvent);
  EXPECT_EQ(
      word.Wait(WaitWord::kPermit | WaitWord::kInterrupt, Deadline::Infinite()),
      WaitWord::kPermit | WaitWord::kInterrupt);
}

TEST(WaitWordTest, TimesOutWithNothing) {
  WaitWord word;
  word.Set(WaitWord::kPermit);
  // Incident H4.
  for (const int64_t timeout : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1},
                                int64_t{999'999'999}, int64_t{1'000'000'000}}) {
    const Deadline deadline =
        Deadline::After(std::chrono::nanoseconds(timeout));
    EXPECT_EQ(word.Wait(WaitWord::kEvent, deadline), 0u) << timeout;
    EXPECT_TRUE(deadline.passed());
  }
  EXPECT_EQ(word.Peek(), WaitWord::kPermit);
}

TEST(WaitWordTest, BitsOutsideTheMaskDoNotEndAWait) {
  WaitWord word;
  Waiter waiter(word, WaitWord::kEvent);
  AwaitSleeping(waiter.tid());
  for (int i = 0; i < 100; ++i) {
    word.Set(WaitWord::kPermit);  // the first wakes it
    word.Set(WaitWord::kInterrupt);
    AwaitSleeping(waiter.tid());
    word.Take(WaitWord::kPermit | WaitWord::kInterrupt);
  }
  EXPECT_FALSE(waiter.returned());
  word.Set(WaitWord::kEvent);
  EXPECT_EQ(waiter.Bits(), WaitWord::kEvent);
}

TEST(WaitWordTest, BitsOutsideTheMaskDoNotOutlastADeadline) {
  WaitWord word;
  Waiter waiter(word, WaitWord::kEvent,
                Deadline::After(std::chrono::milliseconds(50)));
  while (!waiter.returned()) {
    word.Set(WaitWord::kPermit);
    word.Take(WaitWord::kPermit);
    sched_yield();
  }
  EXPECT_EQ(waiter.Bits(), 0u);
}

TEST(WaitWordTest, EveryBitOfTheMaskEndsASleep) {
  for (const uint32_t bit :
       {WaitWord::kPermit, WaitWord::kInterrupt, WaitWord::kEvent}) {
    WaitWord word;
    Waiter waiter(word, kAll,
                  Deadline::After(std::chrono::nanoseconds(INT64_MAX)));
    AwaitSleeping(waiter.tid());
    word.Set(bit);
    EXPECT_EQ(waiter.Bits(), bit);
    EXPECT_EQ(word.Peek(), bit);  // no trace of the sleep
  }
}

TEST(WaitWordTest, SignalsDoNotEndAWaitIncidentH3) {
  testing::CountUserSignals();
  WaitWord word;
  Waiter waiter(word, kAll);
  testing::BombardSleeper(waiter.tid(), Rounds(500));
  EXPECT_FALSE(waiter.returned());
  EXPECT_EQ(word.Take(kAll), 0u);
  word.Set(WaitWord::kEvent);
  EXPECT_EQ(waiter.Bits(), WaitWord::kEvent);
}

// Incident H1: a lost wake-up of the C library's condition variable. Lost once,
// this loop hangs. What is handed over is plain memory: TSan checks the order.
TEST(WaitWordTest, NoWakeUpIsLostInPingPongIncidentH1) {
  const int rounds = Rounds(200'000);
  WaitWord words[2];
  int64_t ball = 0;
  const auto play = [&](int self) {
    for (int i = 0; i < rounds; ++i) {
      words[self].Wait(WaitWord::kPermit, Deadline::Infinite());
      words[self].Take(WaitWord::kPermit);
      ++ball;
      words[1 - self].Set(WaitWord::kPermit);
    }
  };
  std::thread other(play, 1);
  words[0].Set(WaitWord::kPermit);
  play(0);
  other.join();
  EXPECT_EQ(ball, int64_t{2} * rounds);
}

// One setter a bit, in lock step with the owner: a bit that is overwritten by
// another's, or set without the owner's knowledge, stops its setter for ever.
TEST(WaitWordTest, NoBitIsLostAmongOthersIncidentH1) {
  constexpr int kSetters = 3;
  const int rounds = Rounds(50'000);
  WaitWord word;
  std::atomic<int> taken[kSetters] = {};
  std::vector<std::thread> setters;
  for (int s = 0; s < kSetters; ++s) {
    setters.emplace_back([&, s] {
      for (int i = 0; i < rounds; ++i) {
        word.Set(1u << s);
        while (taken[s].load() == i) sched_yield();
      }
    });
  }
  for (int total = 0; total < kSetters * rounds;) {
    const uint32_t bits = word.Wait(kAll, Deadline::Infinite());
    ASSERT_EQ(word.Take(bits), bits);  // the owner alone takes
    for (int s = 0; s < kSetters; ++s) {
      if ((bits & (1u << s)) == 0) continue;
      taken[s].fetch_add(1);
      ++total;
    }
  }
  for (std::thread& setter : setters) setter.join();
  EXPECT_EQ(word.Peek(), 0u);
}

}  // namespace
}  // namespace stillpoint
