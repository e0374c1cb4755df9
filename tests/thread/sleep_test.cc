// Sleep and SleepPrecise: how they end, what they leave alone, and that the
// world stops during them. How exact they are is measured in bench/sleep.

#include <errno.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/base/sanitizers.h"
#include "tests/os/seccomp_filter.h"
#include "tests/os/thread_watch.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using std::chrono::nanoseconds;
using testing::Await;
using testing::AwaitState;
using ::testing::HasSubstr;
using testing::Rounds;
using testing::StartOrFail;

constexpr Deadline kPast = Deadline::AtMonotonicNanos(0);

constexpr LockRank kRank{"sleep_test_lock", kFirstEmbedderRank,
                         "held by a thread that sleeps"};

struct Kind {
  const char* name;
  absl::Status (*sleep)(Deadline);
};

const Kind kKinds[] = {
    {"Sleep", [](Deadline deadline) { return Sleep(deadline); }},
    {"SleepPrecise", [](Deadline deadline) { return SleepPrecise(deadline); }},
};

// Each test for both, and from Managed as well as from Native.
struct Case {
  Kind kind;
  bool managed;
};

class SleepTest : public ::testing::TestWithParam<Case> {
 protected:
  absl::Status SleepUntil(Deadline deadline) {
    return GetParam().kind.sleep(deadline);
  }
  template <typename Duration>
  absl::Status SleepFor(Duration duration) {
    return SleepUntil(Deadline::After(duration));
  }
  ThreadState state() const {
    return GetParam().managed ? ThreadState::kManaged : ThreadState::kNative;
  }

  // Starts a thread that runs `body` in the state of the case, in which it has
  // to be at its end as well.
  template <typename Body>
  ThreadHandle Start(Body body) {
    return StartOrFail(*runtime_, "sleeper",
                       [this, body = std::move(body)]() mutable {
                         if (GetParam().managed) {
                           ManagedScope managed;
                           body();
                           EXPECT_EQ(Thread::Current()->state(), state());
                         } else {
                           body();
                           EXPECT_EQ(Thread::Current()->state(), state());
                         }
                       });
  }
  template <typename Body>
  void OnThread(Body body) {
    EXPECT_TRUE(Start(std::move(body)).Join().ok());
  }
  void AwaitAsleep() {
    AwaitState(*runtime_, "sleeper", ThreadState::kBlocked);
  }

  const std::unique_ptr<Runtime> runtime_ = testing::MakeRuntime();
};

INSTANTIATE_TEST_SUITE_P(
    All, SleepTest,
    ::testing::Values(Case{kKinds[0], false}, Case{kKinds[0], true},
                      Case{kKinds[1], false}, Case{kKinds[1], true}),
    [](const ::testing::TestParamInfo<Case>& info) {
      return std::string(info.param.kind.name) +
             (info.param.managed ? "InManaged" : "InNative");
    });

TEST_P(SleepTest, IsNeverEarlyIncidentH4) {
  OnThread([&] {
    for (const int64_t nanos :
         {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{100},
          int64_t{1'000}, int64_t{100'000}, int64_t{99'999'999}}) {
      const Deadline deadline = Deadline::After(nanoseconds(nanos));
      const absl::Status slept = SleepUntil(deadline);
      EXPECT_TRUE(slept.ok()) << slept;
      EXPECT_TRUE(deadline.passed()) << nanos;
    }
  });
}

TEST_P(SleepTest, PassedDeadlinesReturnAtOnceIncidentH4) {
  OnThread([&] {
    for (const int64_t nanos : {INT64_MIN, int64_t{-1}, int64_t{0}}) {
      EXPECT_TRUE(SleepUntil(Deadline::AtMonotonicNanos(nanos)).ok());
    }
    EXPECT_TRUE(SleepFor(std::chrono::hours::min()).ok());
    EXPECT_TRUE(SleepFor(std::chrono::duration<double>(-1e300)).ok());
    EXPECT_TRUE(SleepFor(std::chrono::duration<double>(
                             std::numeric_limits<double>::quiet_NaN()))
                    .ok());
  });
}

TEST_P(SleepTest, HugeOnesSleepUntilInterruptedIncidentH4) {
  for (const Deadline deadline :
       {Deadline::Infinite(), Deadline::AtMonotonicNanos(INT64_MAX - 1),
        Deadline::After(nanoseconds::max()),
        Deadline::After(std::chrono::hours::max()),
        Deadline::After(std::chrono::duration<double>(1e300))}) {
    std::atomic<pid_t> tid{0};
    const ThreadHandle sleeper = Start([&] {
      tid.store(Thread::CurrentOrDie().tid());
      EXPECT_TRUE(IsInterrupted(SleepUntil(deadline)));
      EXPECT_FALSE(Thread::CurrentOrDie().interrupted());
    });
    AwaitAsleep();
    testing::AwaitSleeping(tid.load());  // in the kernel: it does not spin
    EXPECT_TRUE(sleeper.Interrupt());
    EXPECT_TRUE(sleeper.Join().ok());
  }
}

TEST_P(SleepTest, AnInterruptThatCameBeforeEndsItAtOnceAndIsTaken) {
  OnThread([&] {
    for (const Deadline deadline :
         {Deadline::AtMonotonicNanos(INT64_MIN), kPast,
          Deadline::After(std::chrono::hours(1)), Deadline::Infinite()}) {
      EXPECT_TRUE(CurrentThreadHandle().Interrupt());
      const absl::Status slept = SleepUntil(deadline);
      EXPECT_TRUE(IsInterrupted(slept)) << slept;
      EXPECT_THAT(std::string(slept.message()),
                  HasSubstr(GetParam().kind.name));
      EXPECT_FALSE(Thread::CurrentOrDie().interrupted());
      EXPECT_TRUE(SleepUntil(kPast).ok());
    }
  });
}

TEST_P(SleepTest, PermitsNeitherEndItNorAreTaken) {
  std::atomic<pid_t> tid{0};
  std::atomic<bool> returned{false};
  const ThreadHandle sleeper = Start([&] {
    tid.store(Thread::CurrentOrDie().tid());
    // One that is there before, and one that comes meanwhile.
    EXPECT_TRUE(CurrentThreadHandle().Unpark());
    EXPECT_TRUE(SleepFor(std::chrono::microseconds(300)).ok());
    EXPECT_TRUE(Park(kPast).ok());
    EXPECT_TRUE(IsInterrupted(SleepUntil(Deadline::Infinite())));
    returned.store(true);
    EXPECT_TRUE(Park(kPast).ok());
    EXPECT_TRUE(absl::IsDeadlineExceeded(Park(kPast)));
  });
  AwaitAsleep();
  testing::AwaitSleeping(tid.load());
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(sleeper.Unpark());
    testing::AwaitSleeping(tid.load());
  }
  EXPECT_FALSE(returned.load());
  EXPECT_TRUE(sleeper.Interrupt());
  EXPECT_TRUE(sleeper.Join().ok());
}

TEST_P(SleepTest, SignalsDoNotEndItIncidentH3) {
  testing::CountUserSignals();
  std::atomic<pid_t> tid{0};
  std::atomic<bool> returned{false};
  const ThreadHandle sleeper = Start([&] {
    tid.store(Thread::CurrentOrDie().tid());
    EXPECT_TRUE(IsInterrupted(SleepFor(std::chrono::hours(1))));
    returned.store(true);
  });
  AwaitAsleep();
  testing::BombardSleeper(tid.load(), Rounds(300));
  EXPECT_FALSE(returned.load());
  EXPECT_TRUE(sleeper.Interrupt());
  EXPECT_TRUE(sleeper.Join().ok());
}

// Every interrupt is noticed once, whether it comes in the sleep, in the spin
// at its end, or between two.
TEST_P(SleepTest, EachInterruptEndsOneSleep) {
  const int rounds = Rounds(500);  // a spin may last a time slice
  std::atomic<int> seen{0};
  const ThreadHandle sleeper = Start([&] {
    while (seen.load() < rounds) {
      const absl::Status slept = SleepFor(std::chrono::microseconds(30));
      if (!slept.ok()) seen.fetch_add(1);
    }
  });
  for (int i = 0; i < rounds; ++i) {
    EXPECT_TRUE(sleeper.Interrupt());
    while (seen.load() == i) std::this_thread::yield();
  }
  EXPECT_TRUE(sleeper.Join().ok());
  EXPECT_EQ(seen.load(), rounds);
}

TEST_P(SleepTest, ShutdownEndsIt) {
  const ThreadHandle sleeper = Start([&] {
    EXPECT_TRUE(IsInterrupted(SleepUntil(Deadline::Infinite())));
    // Back in Managed it would be parked for good, if the VM thread ended
    // first; the runtime waits for its members before that.
  });
  AwaitAsleep();
  EXPECT_TRUE(runtime_->Shutdown(Deadline::Infinite()).ok());
  EXPECT_TRUE(sleeper.Join().ok());
}

TEST_P(SleepTest, TheWorldStopsWhileThreadsSleep) {
  StopCanary canary;
  std::atomic<bool> end{false};
  std::vector<ThreadHandle> sleepers;
  // Short ones, so that stops meet every phase of it and the ways in and out.
  for (const int micros : {0, 3, 50, 400}) {
    sleepers.push_back(Start([&, micros] {
      while (!end.load()) {
        EXPECT_TRUE(SleepFor(std::chrono::microseconds(micros)).ok());
        if (!GetParam().managed) continue;
        StopCanary::Work work(canary);
      }
    }));
  }
  for (int i = 0; i < Rounds(300); ++i) {
    testing::StopAndCheck(*runtime_, canary);
  }
  end.store(true);
  for (const ThreadHandle& sleeper : sleepers) {
    EXPECT_TRUE(sleeper.Join().ok());
  }
  EXPECT_EQ(canary.violations(), 0u);
}

// Incident A7: people put a sleep of zero into a loop as a poll.
TEST_P(SleepTest, OfZeroIsAPollInManagedIncidentA7) {
  std::atomic<bool> end{false};
  const ThreadHandle looping = Start([&] {
    while (!end.load()) EXPECT_TRUE(SleepUntil(kPast).ok());
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(runtime_->AtSafepoint("stop", [](World&) {}).ok());
  }
  end.store(true);
  EXPECT_TRUE(looping.Join().ok());
}

TEST_P(SleepTest, IsRefusedInAVmOperationIncidentC3) {
  absl::Status slept;
  ASSERT_TRUE(
      runtime_
          ->AtSafepoint("sleeps", [&](World&) { slept = SleepUntil(kPast); })
          .ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(slept)) << slept;
  EXPECT_THAT(std::string(slept.message()),
              HasSubstr(std::string(GetParam().kind.name) +
                        " from inside a VM operation"));
}

TEST_P(SleepTest, IsRefusedWithALockHeldOrWhereTheThreadMayNotStop) {
  OnThread([&] {
    RankedMutex mutex(kRank);
    NoSafepointScope no_safepoint;
    absl::Status slept = SleepUntil(Deadline::Infinite());
    EXPECT_TRUE(absl::IsFailedPrecondition(slept)) << slept;
    EXPECT_THAT(std::string(slept.message()), HasSubstr("NoSafepointScope"));
    if (mutex.TryLock()) {
      slept = SleepUntil(Deadline::Infinite());
      mutex.Unlock();
    }
    EXPECT_TRUE(absl::IsFailedPrecondition(slept)) << slept;
    EXPECT_THAT(std::string(slept.message()), HasSubstr("sleep_test_lock"));
  });
}

TEST_P(SleepTest, AnUnattachedThreadSleepsIfThereIsAnEnd) {
  ASSERT_EQ(Thread::Current(), nullptr);
  for (const int64_t nanos :
       {INT64_MIN, int64_t{0}, int64_t{1'000}, int64_t{2'000'000}}) {
    const Deadline deadline = Deadline::After(nanoseconds(nanos));
    const absl::Status slept = SleepUntil(deadline);
    EXPECT_TRUE(slept.ok()) << slept;
    EXPECT_TRUE(deadline.passed());
  }
  const absl::Status endless = SleepUntil(Deadline::Infinite());
  EXPECT_TRUE(absl::IsFailedPrecondition(endless)) << endless;
  EXPECT_THAT(std::string(endless.message()),
              HasSubstr("Runtime::AttachCurrentThread"));
}

// Nothing but the exactness is lost.
TEST_P(SleepTest, WorksWithoutPrctl) {
  const bool ran = testing::RunDenied({{SYS_prctl, EPERM}}, [&] {
    OnThread([&] {
      for (int i = 0; i < 20; ++i) {
        const Deadline deadline = Deadline::After(std::chrono::milliseconds(1));
        EXPECT_TRUE(SleepUntil(deadline).ok());
        EXPECT_TRUE(deadline.passed());
      }
    });
  });
  if (!ran) GTEST_SKIP() << "this kernel has no seccomp filters";
}

TEST_P(SleepTest, LeavesTheTimerSlackAsItWas) {
  constexpr nanoseconds kSlack(4'567);
  std::atomic<bool> endless{false};
  const ThreadHandle sleeper = Start([&] {
    EXPECT_TRUE(SetCurrentTimerSlack(kSlack).ok());
    EXPECT_TRUE(SleepFor(std::chrono::milliseconds(1)).ok());
    EXPECT_EQ(CurrentTimerSlack().value(), kSlack);
    endless.store(true);
    EXPECT_TRUE(IsInterrupted(SleepFor(std::chrono::hours(1))));
    EXPECT_EQ(CurrentTimerSlack().value(), kSlack);
  });
  Await([&] { return endless.load(); });
  EXPECT_TRUE(sleeper.Interrupt());
  EXPECT_TRUE(sleeper.Join().ok());
}

// The sleeps that are too short for the kernel.
TEST_P(SleepTest, ShortOnesWithTheLeastSlackEndLikeAllOthers) {
  StopCanary canary;
  std::atomic<int> seen{0};
  const int rounds = Rounds(100);
  const ThreadHandle sleeper = Start([&] {
    EXPECT_TRUE(SetCurrentTimerSlack(kMinTimerSlack).ok());
    EXPECT_TRUE(CurrentThreadHandle().Unpark());
    while (seen.load() < rounds) {
      const Deadline deadline = Deadline::After(std::chrono::microseconds(3));
      if (SleepUntil(deadline).ok()) {
        EXPECT_TRUE(deadline.passed());
      } else {
        seen.fetch_add(1);
      }
    }
    EXPECT_TRUE(Park(kPast).ok());
  });
  for (int i = 0; i < rounds; ++i) {
    EXPECT_TRUE(sleeper.Interrupt());
    testing::StopAndCheck(*runtime_, canary);
    while (seen.load() == i) std::this_thread::yield();
  }
  EXPECT_TRUE(sleeper.Join().ok());
}

TEST(SleepForTest, TakesEveryUnit) {
  EXPECT_TRUE(Sleep(std::chrono::hours(-1)).ok());
  EXPECT_TRUE(Sleep(std::chrono::microseconds(1)).ok());
  EXPECT_TRUE(Sleep(std::chrono::duration<float, std::milli>(0.5f)).ok());
  EXPECT_TRUE(SleepPrecise(std::chrono::milliseconds(0)).ok());
  EXPECT_TRUE(SleepPrecise(std::chrono::microseconds(1)).ok());
  // Infinite, so refused here, where nobody could end it.
  EXPECT_TRUE(absl::IsFailedPrecondition(Sleep(std::chrono::hours::max())));
  EXPECT_TRUE(
      absl::IsFailedPrecondition(SleepPrecise(std::chrono::hours::max())));
}

}  // namespace
}  // namespace stillpoint
