// Whoever is ready gets its turn: nobody is forgotten in a queue, behind a
// timer, or beside an idle carrier. A thread that is forgotten hangs its test.

#include <sched.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "tests/base/sanitizers.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Rounds;
using testing::StartGreenOrFail;

class FairnessTest : public testing::RuntimeTest {
 protected:
  // A runtime with so many carriers, none of which is helped by the end of a
  // time slice or by a hand-off within the life of a test, unless it says so.
  void MakeWith(size_t carriers) {
    Options options = testing::TestOptions(GetParam());
    options.carriers = carriers;
    options.extra_carriers = 0;
    options.time_slice = std::chrono::seconds(10);
    options.native_handoff = std::chrono::seconds(10);
    Make(options);
  }
  void MakeWithShortSlices(size_t carriers) {
    Options options = testing::TestOptions(GetParam());
    options.carriers = carriers;
    options.extra_carriers = 0;
    options.time_slice = std::chrono::microseconds(100);
    Make(options);
  }
};
STILLPOINT_IN_ALL_CONFIGURATIONS(FairnessTest);

// Runs managed code until `done`, for as long as its time slices last.
void PollUntil(const std::atomic<bool>& done) {
  Thread& self = Thread::CurrentOrDie();
  ManagedScope managed(self);
  while (!done.load()) Poll(self);
}

// The deadline passes while the thread is on its way to sleep.
TEST_P(FairnessTest, AWaitEndsHoweverShortItsTimeIs) {
  MakeWith(1);
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 2; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "sleeper", [] {
      for (int round = 0; round < Rounds(3'000); ++round) {
        const absl::Status parked =
            Park(Deadline::After(std::chrono::nanoseconds(round % 2'000)));
        ASSERT_TRUE(absl::IsDeadlineExceeded(parked)) << parked;
      }
    }));
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
}

// Who is woken by a thread on its carrier is next there, and gets its turn at
// the end of that thread's slice.
TEST_P(FairnessTest, AThreadThatAPollingOneHasWokenRuns) {
  MakeWithShortSlices(1);
  std::atomic<bool> done{false};
  std::atomic<bool> waits{false};
  const ThreadHandle parked = StartGreenOrFail(runtime(), "parked", [&] {
    waits.store(true);
    EXPECT_TRUE(Park().ok());
    done.store(true);
  });
  const ThreadHandle spinner = StartGreenOrFail(runtime(), "spinner", [&] {
    while (!waits.load()) Yield();
    EXPECT_TRUE(parked.Unpark());
    PollUntil(done);
  });
  EXPECT_TRUE(spinner.Join().ok());
  EXPECT_TRUE(parked.Join().ok());
}

TEST_P(FairnessTest, AThreadThatAPollingOneHasStartedRuns) {
  MakeWithShortSlices(1);
  std::atomic<bool> done{false};
  const ThreadHandle spinner = StartGreenOrFail(runtime(), "spinner", [&] {
    const ThreadHandle child =
        StartGreenOrFail(runtime(), "child", [&] { done.store(true); });
    PollUntil(done);
    EXPECT_TRUE(child.Join().ok());
  });
  EXPECT_TRUE(spinner.Join().ok());
}

// Time passes for a sleeper though its carrier has something to run, and
// nobody has been waiting for long.
TEST_P(FairnessTest, ASleeperWakesUpBesideAPollingThread) {
  MakeWithShortSlices(1);
  for (int millis : {1, 100}) {
    std::atomic<bool> done{false};
    std::atomic<bool> sleeps{false};
    const ThreadHandle sleeper = StartGreenOrFail(runtime(), "sleeper", [&] {
      sleeps.store(true);
      EXPECT_TRUE(Sleep(std::chrono::milliseconds(millis)).ok());
      done.store(true);
    });
    const ThreadHandle spinner = StartGreenOrFail(runtime(), "spinner", [&] {
      while (!sleeps.load()) Yield();
      PollUntil(done);
    });
    EXPECT_TRUE(sleeper.Join().ok());
    EXPECT_TRUE(spinner.Join().ok());
  }
}

// The same for one that was asleep before, beside nobody.
TEST_P(FairnessTest, ASleeperWakesUpBesideALaterPollingThread) {
  MakeWithShortSlices(1);
  std::atomic<bool> done{false};
  const ThreadHandle sleeper = StartGreenOrFail(runtime(), "sleeper", [&] {
    EXPECT_TRUE(Sleep(std::chrono::milliseconds(150)).ok());
    done.store(true);
  });
  testing::AwaitState(runtime(), "sleeper", ThreadState::kBlocked);
  EXPECT_TRUE(Sleep(std::chrono::milliseconds(50)).ok());
  const ThreadHandle spinner =
      StartGreenOrFail(runtime(), "spinner", [&] { PollUntil(done); });
  EXPECT_TRUE(sleeper.Join().ok());
  EXPECT_TRUE(spinner.Join().ok());
}

// Two that keep each other busy leave turns to a third that has not begun: the
// pattern in which they take theirs has a period of two, or of three.
TEST_P(FairnessTest, TwoThatWakeEachOtherLeaveTurnsToAThird) {
  MakeWith(1);
  for (int shift = 0; shift < 6; ++shift) {
    std::atomic<bool> done{false};
    std::atomic<bool> waits{false};
    const ThreadHandle answers = StartGreenOrFail(runtime(), "answers", [&] {
      waits.store(true);
      while (!done.load()) EXPECT_TRUE(Park().ok());
    });
    const ThreadHandle asks = StartGreenOrFail(runtime(), "asks", [&] {
      while (!waits.load()) Yield();
      const ThreadHandle third =
          StartGreenOrFail(runtime(), "third", [&] { done.store(true); });
      for (int i = 0; i < shift; ++i) {
        answers.Unpark();
        Yield();
      }
      while (!done.load()) {
        answers.Unpark();
        Yield();
      }
      answers.Unpark();
      EXPECT_TRUE(third.Join().ok());
    });
    EXPECT_TRUE(asks.Join().ok());
    EXPECT_TRUE(answers.Join().ok());
  }
}

// As many threads as carriers, none of which lets its carrier go before all of
// them run: nobody waits while a carrier is idle.
TEST_P(FairnessTest, NobodyWaitsWhileACarrierIsIdle) {
  for (int carriers : {2, 3}) {
    MakeWith(static_cast<size_t>(carriers));
    const auto meet = [carriers](std::atomic<int>& arrived) {
      ManagedScope managed;
      arrived.fetch_add(1);
      while (arrived.load() < carriers) sched_yield();
    };
    for (int round = 0; round < Rounds(300); ++round) {
      std::atomic<int> arrived{0};
      std::vector<ThreadHandle> threads;
      for (int i = 0; i < carriers; ++i) {
        threads.push_back(StartGreenOrFail(runtime(), "from outside",
                                           [&] { meet(arrived); }));
      }
      for (const ThreadHandle& thread : threads) {
        EXPECT_TRUE(thread.Join().ok());
      }
      // The same, started by one of them.
      arrived.store(0);
      std::vector<ThreadHandle> children;
      const ThreadHandle parent = StartGreenOrFail(runtime(), "parent", [&] {
        for (int i = 1; i < carriers; ++i) {
          children.push_back(
              StartGreenOrFail(runtime(), "child", [&] { meet(arrived); }));
        }
        meet(arrived);
      });
      EXPECT_TRUE(parent.Join().ok());
      for (const ThreadHandle& child : children) {
        EXPECT_TRUE(child.Join().ok());
      }
    }
  }
}

}  // namespace
}  // namespace stillpoint
