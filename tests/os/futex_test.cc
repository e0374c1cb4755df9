#include "runtime/os/futex.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
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
using testing::BombardSleeper;
using testing::Rounds;

// Runs one FutexWait on a thread of its own.
class Sleeper {
 public:
  Sleeper(const std::atomic<uint32_t>& word, uint32_t expected,
          Deadline deadline)
      : thread_([this, &word, expected, deadline] {
          tid_.store(CurrentTid());
          result_ = FutexWait(word, expected, deadline);
          returned_.store(true);
        }) {}

  pid_t tid() const {
    while (tid_.load() == 0) sched_yield();
    return tid_.load();
  }
  bool returned() const { return returned_.load(); }
  FutexResult Result() {
    thread_.join();
    return result_;
  }

 private:
  std::atomic<pid_t> tid_{0};
  std::atomic<bool> returned_{false};
  FutexResult result_ = FutexResult::kWoken;
  std::thread thread_;  // last: it uses the others
};

TEST(FutexTest, ReturnsAtOnceIfTheWordHasChanged) {
  const std::atomic<uint32_t> word{1};
  EXPECT_EQ(FutexWait(word, 0u, Deadline::Infinite()),
            FutexResult::kValueChanged);
  // The look at the word comes before the look at the clock.
  EXPECT_EQ(FutexWait(word, 0u, Deadline::AtMonotonicNanos(0)),
            FutexResult::kValueChanged);
}

TEST(FutexTest, WaitsOnWordsOfOtherTypes) {
  enum class Color : uint32_t { kRed = 7, kBlue = 0xFFFF'FFFF };
  const std::atomic<Color> color{Color::kBlue};
  EXPECT_EQ(FutexWait(color, Color::kRed, Deadline::Infinite()),
            FutexResult::kValueChanged);
  EXPECT_EQ(FutexWait(color, Color::kBlue, Deadline::AtMonotonicNanos(0)),
            FutexResult::kTimedOut);
  const std::atomic<int32_t> number{-1};
  EXPECT_EQ(FutexWait(number, -1, Deadline::AtMonotonicNanos(0)),
            FutexResult::kTimedOut);
}

// Incident H4: each ends by itself, and as a time-out.
TEST(FutexTest, ShortAndPassedDeadlinesTimeOutIncidentH4) {
  const std::atomic<uint32_t> word{0};
  for (const int64_t timeout :
       {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{999'999},
        // Nanoseconds that have to be carried into the seconds.
        int64_t{999'999'999}, int64_t{1'000'000'000}}) {
    const Deadline deadline =
        Deadline::After(std::chrono::nanoseconds(timeout));
    EXPECT_EQ(FutexWait(word, 0u, deadline), FutexResult::kTimedOut) << timeout;
    EXPECT_TRUE(deadline.passed()) << timeout;
  }
}

TEST(FutexTest, PointsBeforeTheClockHavePassedIncidentH4) {
  const std::atomic<uint32_t> word{0};
  for (const int64_t nanos :
       {INT64_MIN, int64_t{-1'000'000'001}, int64_t{-1}, int64_t{0}}) {
    EXPECT_EQ(FutexWait(word, 0u, Deadline::AtMonotonicNanos(nanos)),
              FutexResult::kTimedOut)
        << nanos;
  }
}

// Incident H4: a huge deadline is neither refused nor a spin: the thread
// sleeps, and can be woken.
TEST(FutexTest, HugeDeadlinesSleepUntilWokenIncidentH4) {
  for (const Deadline deadline :
       {Deadline::Infinite(), Deadline::AtMonotonicNanos(INT64_MAX - 1),
        Deadline::After(std::chrono::nanoseconds(INT64_MAX)),
        Deadline::After(std::chrono::hours::max()),
        Deadline::After(std::chrono::hours(2'000'000))}) {
    std::atomic<uint32_t> word{0};
    Sleeper sleeper(word, 0, deadline);
    AwaitSleeping(sleeper.tid());
    while (FutexWake(word, 1) == 0) sched_yield();
    EXPECT_EQ(sleeper.Result(), FutexResult::kWoken);
  }
}

TEST(FutexTest, WakesNoMoreThanAskedAndReportsHowMany) {
  constexpr int kSleepers = 8;
  std::atomic<uint32_t> word{0};
  EXPECT_EQ(FutexWake(word, INT32_MAX), 0);
  std::vector<std::unique_ptr<Sleeper>> sleepers;
  for (int i = 0; i < kSleepers; ++i) {
    sleepers.push_back(
        std::make_unique<Sleeper>(word, 0, Deadline::Infinite()));
  }
  for (const auto& sleeper : sleepers) AwaitSleeping(sleeper->tid());
  int woken = 0;
  while (woken < kSleepers) {
    const int now = FutexWake(word, 3);
    EXPECT_LE(now, 3);
    woken += now;
    if (now == 0) sched_yield();  // one slept elsewhere when we looked
  }
  EXPECT_EQ(FutexWake(word, INT32_MAX), 0);
  for (const auto& sleeper : sleepers) {
    EXPECT_EQ(sleeper->Result(), FutexResult::kWoken);
  }
}

// Incident G3: EINTR everywhere.
TEST(FutexTest, SignalsDoNotEndAWaitIncidentG3) {
  testing::CountUserSignals();
  const int before = testing::UserSignals();
  std::atomic<uint32_t> word{0};
  Sleeper sleeper(word, 0, Deadline::Infinite());
  BombardSleeper(sleeper.tid(), Rounds(500));
  EXPECT_FALSE(sleeper.returned());
  while (FutexWake(word, 1) == 0) sched_yield();
  EXPECT_EQ(sleeper.Result(), FutexResult::kWoken);
  EXPECT_GT(testing::UserSignals(), before);
}

TEST(FutexTest, SignalsDoNotMoveADeadlineIncidentG3) {
  testing::CountUserSignals();
  const std::atomic<uint32_t> word{0};
  const Deadline deadline = Deadline::After(std::chrono::milliseconds(50));
  Sleeper sleeper(word, 0, deadline);
  // Were the wait begun anew after each signal, it would never end.
  while (!sleeper.returned()) {
    syscall(SYS_tgkill, getpid(), sleeper.tid(), SIGUSR1);
    sched_yield();
  }
  EXPECT_EQ(sleeper.Result(), FutexResult::kTimedOut);
  EXPECT_TRUE(deadline.passed());
}

// No lost wake-up: each side sleeps only if the word still says so.
TEST(FutexTest, PingPong) {
  const int rounds = Rounds(100'000);
  std::atomic<uint32_t> turn{0};
  const auto play = [&](uint32_t mine) {
    for (int i = 0; i < rounds; ++i) {
      uint32_t now;
      while ((now = turn.load()) != mine) {
        FutexWait(turn, now, Deadline::Infinite());
      }
      turn.store(1 - mine);
      FutexWake(turn, 1);
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(turn.load(), 0u);
}

}  // namespace
}  // namespace stillpoint
