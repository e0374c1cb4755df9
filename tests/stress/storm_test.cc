// Incident A1, the start/exit storm, for correctness: threads start, exit,
// attach and detach as fast as they can while stops follow each other without a
// pause. (bench/ and examples/ measure it.)

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/await.h"
#include "tests/support/busy_mutators.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::BusyMutators;
using testing::StartOrFail;
using testing::StopAndCheck;

class StormTest : public testing::RuntimeTest {
 protected:
  // One thread's share of managed work.
  void WorkABit() {
    ManagedScope managed;
    Thread& self = Thread::CurrentOrDie();
    for (int i = 0; i < 3; ++i) {
      { StopCanary::Work work(canary()); }
      Poll(self);
    }
    NativeScope native;
  }

  // Starts short threads and joins every other one of them.
  void StartAndExit(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      ThreadHandle kept = StartOrFail(runtime(), "kept", [this] {
        WorkABit();
        ended_.fetch_add(1);
      });
      StartOrFail(runtime(), "left alone", [this] {
        WorkABit();
        ended_.fetch_add(1);
      });
      EXPECT_TRUE(kept.Join().ok());
      EXPECT_FALSE(kept.alive());
    }
  }

  void AttachAndDetach(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      AttachScope attached(runtime(), "guest");
      ASSERT_TRUE(attached.status().ok());
      WorkABit();
    }
  }

  // Stops, one after the other, until `done`.
  void StopUntil(const std::atomic<bool>& done) {
    while (!done.load()) {
      StopAndCheck(runtime(), canary());
      stops_.fetch_add(1);
    }
  }

  std::atomic<int> ended_{0};
  std::atomic<uint64_t> stops_{0};
};
STILLPOINT_IN_ALL_CONFIGURATIONS(StormTest);

TEST_P(StormTest, StartsExitsAttachesAgainstContinuousStops) {
  constexpr int kRounds = 25;
  std::atomic<bool> done{false};
  std::vector<std::thread> storm;
  {
    BusyMutators busy(runtime(), canary(), 2);
    std::vector<std::thread> stoppers;
    for (int i = 0; i < 2; ++i) {
      stoppers.emplace_back([this, &done] { StopUntil(done); });
    }
    for (int i = 0; i < 2; ++i) {
      storm.emplace_back([this] { StartAndExit(kRounds); });
      storm.emplace_back([this] { AttachAndDetach(kRounds); });
    }
    // A member starts threads as well, in Managed and out of it.
    const ThreadHandle starter = StartOrFail(runtime(), "starter", [this] {
      StartAndExit(kRounds);
      ManagedScope managed;
      StartAndExit(kRounds);
    });
    for (std::thread& thread : storm) thread.join();
    EXPECT_TRUE(starter.Join().ok());
    done.store(true);
    for (std::thread& stopper : stoppers) stopper.join();
  }
  Await([&] { return ended_.load() == 4 * 2 * kRounds; });
  Await([&] { return runtime().ThreadCount() == 0; });
  EXPECT_GT(stops_.load(), 0u);
}

// The same, and the runtime is shut down in the middle of it: each request is
// either done or refused, and nothing hangs.
TEST_P(StormTest, ShutdownInTheMiddle) {
  for (int round = 0; round < 5; ++round) {
    if (round > 0) Make(testing::TestOptions(GetParam()));
    std::vector<std::thread> storm;
    for (int i = 0; i < 2; ++i) {
      storm.emplace_back([&] {
        while (true) {
          absl::StatusOr<ThreadHandle> started =
              runtime().Start([this] { WorkABit(); });
          if (!started.ok()) {
            EXPECT_TRUE(absl::IsFailedPrecondition(started.status()));
            break;
          }
        }
      });
      storm.emplace_back([&] {
        while (true) {
          AttachScope attached(runtime(), "guest");
          if (!attached.status().ok()) {
            EXPECT_TRUE(absl::IsFailedPrecondition(attached.status()));
            break;
          }
        }
      });
      storm.emplace_back([&] {
        while (true) {
          const absl::Status stopped =
              runtime().AtSafepoint("x", [&](World&) { canary().Check(); });
          if (!stopped.ok()) {
            EXPECT_TRUE(absl::IsFailedPrecondition(stopped));
            break;
          }
          stops_.fetch_add(1);
        }
      });
    }
    const uint64_t before = stops_.load();
    Await([&] { return stops_.load() > before + 10; });
    const absl::Status ended = runtime().Shutdown(Deadline::Infinite());
    EXPECT_TRUE(ended.ok()) << ended;
    for (std::thread& thread : storm) thread.join();
    EXPECT_EQ(runtime().ThreadCount(), 0u);
    End();
  }
}

}  // namespace
}  // namespace stillpoint
