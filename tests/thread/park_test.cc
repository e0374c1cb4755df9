// The parker: permits, interrupts, deadlines.

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
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

class ParkTest : public ::testing::Test {
 protected:
  // Runs `body` on a thread of the runtime, and waits for it.
  void OnThread(std::function<void()> body) {
    EXPECT_TRUE(StartOrFail(*runtime_, "", std::move(body)).Join().ok());
  }
  // Until the thread of that name waits.
  void AwaitParked(std::string_view name) {
    AwaitState(*runtime_, name, ThreadState::kBlocked);
  }

  const std::unique_ptr<Runtime> runtime_ = testing::MakeRuntime();
};

TEST_F(ParkTest, APermitThatCameBeforeEndsItAtOnce) {
  OnThread([] {
    EXPECT_TRUE(CurrentThreadHandle().Unpark());
    EXPECT_TRUE(Park().ok());
    // It was taken.
    EXPECT_TRUE(absl::IsDeadlineExceeded(Park(kPast)));
  });
}

TEST_F(ParkTest, PermitsDoNotAddUp) {
  OnThread([] {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(CurrentThreadHandle().Unpark());
    EXPECT_TRUE(Park().ok());
    EXPECT_TRUE(absl::IsDeadlineExceeded(Park(kPast)));
  });
}

TEST_F(ParkTest, UnparkEndsASleepFromEitherState) {
  for (const bool in_managed : {false, true}) {
    const ThreadHandle parker = StartOrFail(*runtime_, "parker", [&] {
      if (!in_managed) {
        EXPECT_TRUE(Park().ok());
        EXPECT_EQ(Thread::CurrentOrDie().state(), ThreadState::kNative);
      } else {
        ManagedScope managed;
        EXPECT_TRUE(Park().ok());
        EXPECT_EQ(Thread::CurrentOrDie().state(), ThreadState::kManaged);
      }
    });
    AwaitParked("parker");
    // Incident B14: it is safe meanwhile, so a stop comes through.
    EXPECT_TRUE(runtime_->AtSafepoint("stop", [](World&) {}).ok());
    EXPECT_TRUE(parker.alive());
    EXPECT_TRUE(parker.Unpark());
    EXPECT_TRUE(parker.Join().ok());
    EXPECT_FALSE(parker.Unpark());
  }
}

TEST_F(ParkTest, AnInterruptEndsItAndIsTaken) {
  const ThreadHandle parker = StartOrFail(*runtime_, "parker", [] {
    const absl::Status status = Park();
    EXPECT_TRUE(IsInterrupted(status)) << status;
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(std::string(status.message()).find("Interrupted"), 0u);
    EXPECT_FALSE(Thread::CurrentOrDie().interrupted());
    EXPECT_TRUE(absl::IsDeadlineExceeded(Park(kPast)));
  });
  AwaitParked("parker");
  EXPECT_TRUE(parker.Interrupt());
  EXPECT_TRUE(parker.Join().ok());
  EXPECT_FALSE(parker.Interrupt());
}

TEST_F(ParkTest, AnInterruptThatCameBeforeEndsItAtOnce) {
  OnThread([] {
    EXPECT_FALSE(Thread::CurrentOrDie().interrupted());
    EXPECT_TRUE(CurrentThreadHandle().Interrupt());
    EXPECT_TRUE(Thread::CurrentOrDie().interrupted());
    EXPECT_TRUE(Thread::CurrentOrDie().interrupted());  // a look takes nothing
    EXPECT_TRUE(IsInterrupted(Park()));
    EXPECT_TRUE(absl::IsDeadlineExceeded(Park(kPast)));
  });
}

TEST_F(ParkTest, AnInterruptCanBeTakenWithoutAWait) {
  OnThread([] {
    Thread& self = Thread::CurrentOrDie();
    EXPECT_FALSE(self.ConsumeInterrupt());
    EXPECT_TRUE(CurrentThreadHandle().Interrupt());
    EXPECT_TRUE(self.ConsumeInterrupt());
    EXPECT_FALSE(self.ConsumeInterrupt());
    EXPECT_TRUE(absl::IsDeadlineExceeded(Park(kPast)));
  });
}

TEST_F(ParkTest, AnInterruptComesFirstAndLeavesAPermitAlone) {
  OnThread([] {
    EXPECT_TRUE(CurrentThreadHandle().Unpark());
    EXPECT_TRUE(CurrentThreadHandle().Interrupt());
    EXPECT_TRUE(IsInterrupted(Park(kPast)));
    EXPECT_TRUE(Park(kPast).ok());
    EXPECT_TRUE(absl::IsDeadlineExceeded(Park(kPast)));
  });
}

TEST_F(ParkTest, APermitCountsEvenIfTheDeadlineHasPassed) {
  OnThread([] {
    EXPECT_TRUE(CurrentThreadHandle().Unpark());
    EXPECT_TRUE(Park(Deadline::AtMonotonicNanos(INT64_MIN)).ok());
  });
}

TEST_F(ParkTest, ShortAndPassedDeadlinesIncidentH4) {
  OnThread([] {
    for (const int64_t timeout :
         {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{999'999'999},
          int64_t{1'000'000'000}}) {
      const Deadline deadline =
          Deadline::After(std::chrono::nanoseconds(timeout));
      EXPECT_TRUE(absl::IsDeadlineExceeded(Park(deadline))) << timeout;
      EXPECT_TRUE(deadline.passed());
    }
    for (const int64_t nanos : {INT64_MIN, int64_t{-1}, int64_t{0}}) {
      EXPECT_TRUE(
          absl::IsDeadlineExceeded(Park(Deadline::AtMonotonicNanos(nanos))));
    }
  });
}

TEST_F(ParkTest, HugeDeadlinesSleepAndAreInterruptibleIncidentH4) {
  for (const Deadline deadline :
       {Deadline::Infinite(), Deadline::AtMonotonicNanos(INT64_MAX - 1),
        Deadline::After(std::chrono::nanoseconds(INT64_MAX)),
        Deadline::After(std::chrono::hours::max())}) {
    std::atomic<pid_t> tid{0};
    const ThreadHandle parker = StartOrFail(*runtime_, "parker", [&] {
      tid.store(Thread::CurrentOrDie().tid());
      EXPECT_TRUE(IsInterrupted(Park(deadline)));
    });
    AwaitParked("parker");
    testing::AwaitSleeping(tid.load());  // in the kernel: it does not spin
    EXPECT_TRUE(parker.Interrupt());
    EXPECT_TRUE(parker.Join().ok());
  }
}

TEST_F(ParkTest, SignalsDoNotEndItIncidentH3) {
  testing::CountUserSignals();
  std::atomic<pid_t> tid{0};
  std::atomic<bool> returned{false};
  const ThreadHandle parker = StartOrFail(*runtime_, "parker", [&] {
    ManagedScope managed;
    tid.store(Thread::CurrentOrDie().tid());
    EXPECT_TRUE(Park().ok());
    returned.store(true);
  });
  AwaitParked("parker");
  testing::BombardSleeper(tid.load(), Rounds(500));
  EXPECT_FALSE(returned.load());
  EXPECT_TRUE(parker.Unpark());
  EXPECT_TRUE(parker.Join().ok());
}

// Lost once, it hangs.
TEST_F(ParkTest, NoPermitIsLostInPingPongIncidentH1) {
  const int rounds = Rounds(50'000);
  std::atomic<bool> ready{false};
  ThreadHandle handles[2];
  int64_t ball = 0;  // plain: a permit hands it over, and TSan checks that
  const auto play = [&](int self) {
    Await([&] { return ready.load(); });
    ManagedScope managed;
    for (int i = 0; i < rounds; ++i) {
      ASSERT_TRUE(Park().ok());
      ++ball;
      ASSERT_TRUE(handles[1 - self].Unpark() || i == rounds - 1);
    }
  };
  handles[0] = StartOrFail(*runtime_, "ping", [&] { play(0); });
  handles[1] = StartOrFail(*runtime_, "pong", [&] { play(1); });
  ready.store(true);
  EXPECT_TRUE(handles[0].Unpark());
  EXPECT_TRUE(handles[0].Join().ok());
  EXPECT_TRUE(handles[1].Join().ok());
  EXPECT_EQ(ball, int64_t{2} * rounds);
}

// Every interrupt ends exactly one wait, and no permit is mistaken for one.
TEST_F(ParkTest, InterruptsAndPermitsAreToldApart) {
  const int rounds = Rounds(20'000);
  std::atomic<int> interrupts{0};
  std::atomic<int> permits{0};
  const ThreadHandle parker = StartOrFail(*runtime_, "parker", [&] {
    ManagedScope managed;
    while (interrupts.load() < rounds || permits.load() < rounds) {
      const absl::Status status = Park();
      (status.ok() ? permits : interrupts).fetch_add(1);
    }
  });
  const ThreadHandle interrupter = StartOrFail(*runtime_, "", [&] {
    for (int i = 0; i < rounds; ++i) {
      EXPECT_TRUE(parker.Interrupt());
      while (interrupts.load() == i) sched_yield();
    }
  });
  for (int i = 0; i < rounds; ++i) {
    EXPECT_TRUE(parker.Unpark());
    while (permits.load() == i) sched_yield();
  }
  EXPECT_TRUE(interrupter.Join().ok());
  EXPECT_TRUE(parker.Join().ok());
  EXPECT_EQ(interrupts.load(), rounds);
  EXPECT_EQ(permits.load(), rounds);
}

}  // namespace
}  // namespace stillpoint
