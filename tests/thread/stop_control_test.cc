// Waiting for the end of a stop, with the stopper's part played by the test.

#include "runtime/thread/stop_control.h"

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"
#include "tests/base/sanitizers.h"
#include "tests/os/thread_watch.h"

namespace stillpoint {
namespace {

using testing::AwaitSleeping;
using testing::Rounds;

class Waiter {
 public:
  explicit Waiter(std::function<void()> wait)
      : thread_([this, wait = std::move(wait)] {
          tid_.store(CurrentTid());
          wait();
          returned_.store(true);
        }) {}
  ~Waiter() { thread_.join(); }

  void AwaitAsleep() const {
    while (tid_.load() == 0) sched_yield();
    AwaitSleeping(tid_.load());
  }
  pid_t tid() const { return tid_.load(); }
  bool returned() const { return returned_.load(); }

 private:
  std::atomic<pid_t> tid_{0};
  std::atomic<bool> returned_{false};
  std::thread thread_;  // last: it uses the others
};

void Write(StopControl& control, uint32_t word, int wake) {
  control.stop_word.store(word, std::memory_order_release);
  FutexWake(control.stop_word, wake);
}

TEST(StopControlTest, OddMeansThatAStopIsOn) {
  EXPECT_FALSE(StopControl::StopIsOn(0));
  EXPECT_TRUE(StopControl::StopIsOn(1));
  EXPECT_FALSE(StopControl::StopIsOn(2));
  EXPECT_TRUE(StopControl::StopIsOn(UINT32_MAX));
}

TEST(StopControlTest, NobodyWaitsWhileNoStopIsOn) {
  StopControl control;
  for (const uint32_t word : {0u, 2u, UINT32_MAX - 1}) {
    control.stop_word.store(word);
    WaitWhileStopOn(control);
    WaitForEndOfPresentStop(control);
  }
}

TEST(StopControlTest, AMutatorWaitsForThisStopAndTheNext) {
  StopControl control;
  control.stop_word.store(UINT32_MAX);  // the epoch may wrap
  Waiter waiter([&] { WaitWhileStopOn(control); });
  waiter.AwaitAsleep();
  Write(control, 1, INT32_MAX);  // this one ended, and the next has begun
  waiter.AwaitAsleep();
  EXPECT_FALSE(waiter.returned());
  Write(control, 2, 1);
}

// Back-to-back stops must not starve starts and exits.
TEST(StopControlTest, AMemberChangeWaitsForThisStopOnly) {
  StopControl control;
  control.stop_word.store(1);
  {
    Waiter waiter([&] { WaitForEndOfPresentStop(control); });
    waiter.AwaitAsleep();
    EXPECT_FALSE(waiter.returned());
    Write(control, 3, 1);
  }
  EXPECT_EQ(control.stop_word.load(), 3u);
}

TEST(StopControlTest, AWakeUpWithoutAnEndIsNotAnEnd) {
  StopControl control;
  control.stop_word.store(1);
  Waiter mutator([&] { WaitWhileStopOn(control); });
  Waiter member([&] { WaitForEndOfPresentStop(control); });
  for (int i = 0; i < 50; ++i) {
    mutator.AwaitAsleep();
    member.AwaitAsleep();
    FutexWake(control.stop_word, INT32_MAX);
  }
  mutator.AwaitAsleep();
  member.AwaitAsleep();
  EXPECT_FALSE(mutator.returned());
  EXPECT_FALSE(member.returned());
  Write(control, 2, INT32_MAX);
}

TEST(StopControlTest, SignalsAreNotAnEndIncidentH3) {
  testing::CountUserSignals();
  StopControl control;
  control.stop_word.store(1);
  Waiter waiter([&] { WaitWhileStopOn(control); });
  waiter.AwaitAsleep();
  testing::BombardSleeper(waiter.tid(), Rounds(200));
  EXPECT_FALSE(waiter.returned());
  Write(control, 2, 1);
}

TEST(StopControlTest, ExitsDoNotWaitOnAClosedRuntime) {
  StopControl control;
  control.closed.store(true);
  control.stop_word.store(1);
  WaitForEndOfPresentStop(control);
}

TEST(StopControlTest, ClosingReleasesExitsThatWait) {
  StopControl control;
  control.stop_word.store(1);
  Waiter waiter([&] { WaitForEndOfPresentStop(control); });
  waiter.AwaitAsleep();
  control.closed.store(true);
  FutexWake(control.stop_word, INT32_MAX);
}

// The stopper wakes one; each that wakes passes it on, so that all end. A chain
// that breaks leaves somebody asleep, and the test hangs.
TEST(StopControlTest, TheWakeChainReachesAll) {
  constexpr int kSleepers = 40;
  for (int round = 0; round < Rounds(20); ++round) {
    StopControl control;
    control.stop_word.store(1);
    std::vector<std::unique_ptr<Waiter>> sleepers;
    for (int i = 0; i < kSleepers; ++i) {
      const bool mutator = i % 4 != 0;
      sleepers.push_back(std::make_unique<Waiter>([&control, mutator] {
        mutator ? WaitWhileStopOn(control) : WaitForEndOfPresentStop(control);
      }));
    }
    for (const auto& sleeper : sleepers) sleeper->AwaitAsleep();
    control.stop_word.store(2, std::memory_order_release);
    // One that slept elsewhere when we looked takes no wake-up.
    while (FutexWake(control.stop_word, 1) == 0) sched_yield();
  }
}

}  // namespace
}  // namespace stillpoint
