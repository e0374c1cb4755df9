// Waiting for a thread's end.

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

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

class JoinTest : public ::testing::Test {
 protected:
  // A thread that ends when Release() is called.
  ThreadHandle StartHeld(std::string_view name = "held") {
    return StartOrFail(*runtime_, name,
                       [this] { Await([this] { return released_.load(); }); });
  }
  void Release() { released_.store(true); }

  const std::unique_ptr<Runtime> runtime_ = testing::MakeRuntime();

 private:
  std::atomic<bool> released_{false};
};

TEST_F(JoinTest, EverythingThatTheThreadDidIsVisible) {
  for (int i = 0; i < Rounds(2000); ++i) {
    int64_t plain = 0;  // TSan checks the order
    const ThreadHandle handle = StartOrFail(*runtime_, "", [&] { plain = i; });
    ASSERT_TRUE(handle.Join().ok());
    EXPECT_EQ(plain, i);
  }
}

TEST_F(JoinTest, AThreadThatHasEndedIsJoinedAtOnceAndAgain) {
  const ThreadHandle handle = StartOrFail(*runtime_, "", [] {});
  Await([&] { return !handle.alive(); });
  EXPECT_TRUE(handle.Join().ok());
  EXPECT_TRUE(handle.Join(Deadline::AtMonotonicNanos(INT64_MIN)).ok());
}

TEST_F(JoinTest, ASlotsNextThreadIsNotJoinedInItsPlace) {
  pid_t tid = 0;
  const ThreadHandle first =
      StartOrFail(*runtime_, "", [&] { tid = Thread::CurrentOrDie().tid(); });
  ASSERT_TRUE(first.Join().ok());
  // The slot is given up a little after joiners are let go.
  testing::AwaitGone(tid);
  const ThreadHandle second = StartHeld();
  ASSERT_EQ(second.slot(), first.slot());
  EXPECT_NE(second, first);
  EXPECT_FALSE(first.alive());
  EXPECT_TRUE(first.Join().ok());
  EXPECT_FALSE(first.Interrupt());
  EXPECT_FALSE(first.Unpark());
  EXPECT_TRUE(second.alive());
  Release();
  EXPECT_TRUE(second.Join().ok());
}

TEST_F(JoinTest, ANoHandleIsGone) {
  const ThreadHandle none;
  EXPECT_FALSE(none.alive());
  EXPECT_TRUE(none.Join().ok());
  EXPECT_FALSE(none.Interrupt());
  EXPECT_FALSE(none.Unpark());
}

TEST_F(JoinTest, SeveralThreadsJoinOneFromEveryState) {
  const ThreadHandle target = StartHeld();
  std::atomic<int> joined{0};
  const auto join = [&] {
    EXPECT_TRUE(target.Join().ok());
    EXPECT_FALSE(target.alive());
    joined.fetch_add(1);
  };
  std::vector<ThreadHandle> attached;
  std::vector<std::thread> unattached;
  for (int i = 0; i < 8; ++i) {
    const std::string name = "joiner-" + std::to_string(i);
    attached.push_back(StartOrFail(*runtime_, name, [&join, i] {
      if (i % 2 == 0) return join();
      ManagedScope managed;
      join();
      EXPECT_EQ(Thread::CurrentOrDie().state(), ThreadState::kManaged);
    }));
    unattached.emplace_back(join);
  }
  for (int i = 0; i < 8; ++i) {
    AwaitState(*runtime_, "joiner-" + std::to_string(i), ThreadState::kBlocked);
  }
  EXPECT_EQ(joined.load(), 0);
  // Incident B14: whoever waits is safe, so a stop comes through.
  EXPECT_TRUE(runtime_->AtSafepoint("stop", [](World&) {}).ok());
  Release();
  for (const ThreadHandle& handle : attached) EXPECT_TRUE(handle.Join().ok());
  for (std::thread& thread : unattached) thread.join();
  EXPECT_EQ(joined.load(), 16);
}

TEST_F(JoinTest, OneselfIsAnError) {
  const ThreadHandle handle = StartOrFail(*runtime_, "", [] {
    const absl::Status status = CurrentThreadHandle().Join();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  });
  EXPECT_TRUE(handle.Join().ok());
}

// Incident H4.
TEST_F(JoinTest, ShortAndPassedDeadlinesIncidentH4) {
  const ThreadHandle target = StartHeld();
  for (const int64_t timeout : {INT64_MIN, int64_t{-1}, int64_t{0}, int64_t{1},
                                int64_t{999'999'999}, int64_t{1'000'000'000}}) {
    const Deadline deadline =
        Deadline::After(std::chrono::nanoseconds(timeout));
    EXPECT_TRUE(absl::IsDeadlineExceeded(target.Join(deadline))) << timeout;
    EXPECT_TRUE(deadline.passed());
  }
  for (const int64_t nanos : {INT64_MIN, int64_t{-1}, int64_t{0}}) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(
        target.Join(Deadline::AtMonotonicNanos(nanos))));
  }
  EXPECT_TRUE(target.alive());  // and can still be joined
  Release();
  EXPECT_TRUE(target.Join().ok());
}

TEST_F(JoinTest, HugeDeadlinesWaitAndAreInterruptibleIncidentH4) {
  const ThreadHandle target = StartHeld();
  for (const Deadline deadline :
       {Deadline::Infinite(), Deadline::AtMonotonicNanos(INT64_MAX - 1),
        Deadline::After(std::chrono::nanoseconds(INT64_MAX)),
        Deadline::After(std::chrono::hours::max())}) {
    const ThreadHandle joiner = StartOrFail(*runtime_, "joiner", [&] {
      const absl::Status status = target.Join(deadline);
      EXPECT_TRUE(IsInterrupted(status)) << status;
      // The interrupt was taken.
      EXPECT_FALSE(Thread::CurrentOrDie().interrupted());
    });
    AwaitState(*runtime_, "joiner", ThreadState::kBlocked);
    EXPECT_TRUE(joiner.Interrupt());
    EXPECT_TRUE(joiner.Join().ok());
  }
  Release();
  EXPECT_TRUE(target.Join().ok());
}

TEST_F(JoinTest, AnInterruptLeavesTheThreadJoinable) {
  const ThreadHandle target = StartHeld();
  const ThreadHandle joiner = StartOrFail(*runtime_, "joiner", [&] {
    ManagedScope managed;
    const absl::Status status = target.Join();
    EXPECT_TRUE(IsInterrupted(status));
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(std::string(status.message()).find("Interrupted"), 0u);
    EXPECT_TRUE(target.alive());
    Release();
    EXPECT_TRUE(target.Join().ok());
  });
  AwaitState(*runtime_, "joiner", ThreadState::kBlocked);
  EXPECT_TRUE(joiner.Interrupt());
  EXPECT_TRUE(joiner.Join().ok());
}

TEST_F(JoinTest, AnInterruptThatCameBeforeEndsIt) {
  const ThreadHandle target = StartHeld();
  const ThreadHandle joiner = StartOrFail(*runtime_, "", [&] {
    EXPECT_TRUE(CurrentThreadHandle().Interrupt());
    EXPECT_TRUE(IsInterrupted(target.Join()));
    // A thread that is gone needs no wait, so an interrupt is kept.
    EXPECT_TRUE(CurrentThreadHandle().Interrupt());
    Release();
    Await([&] { return !target.alive(); });
    EXPECT_TRUE(target.Join().ok());
    EXPECT_TRUE(Thread::CurrentOrDie().ConsumeInterrupt());
  });
  EXPECT_TRUE(joiner.Join().ok());
}

TEST_F(JoinTest, APermitDoesNotEndItAndIsKept) {
  const ThreadHandle target = StartHeld();
  const ThreadHandle joiner = StartOrFail(*runtime_, "joiner", [&] {
    EXPECT_TRUE(target.Join().ok());
    EXPECT_TRUE(Park(Deadline::AtMonotonicNanos(0)).ok());
  });
  AwaitState(*runtime_, "joiner", ThreadState::kBlocked);
  EXPECT_TRUE(joiner.Unpark());
  Release();
  EXPECT_TRUE(joiner.Join().ok());
}

TEST_F(JoinTest, SignalsDoNotEndItIncidentH3) {
  testing::CountUserSignals();
  const ThreadHandle target = StartHeld();
  std::atomic<pid_t> tid{0};
  std::atomic<bool> joined{false};
  const ThreadHandle joiner = StartOrFail(*runtime_, "joiner", [&] {
    tid.store(Thread::CurrentOrDie().tid());
    EXPECT_TRUE(target.Join().ok());
    joined.store(true);
  });
  AwaitState(*runtime_, "joiner", ThreadState::kBlocked);
  testing::BombardSleeper(tid.load(), Rounds(500));
  EXPECT_FALSE(joined.load());
  Release();
  EXPECT_TRUE(joiner.Join().ok());
}

TEST_F(JoinTest, AThreadOfAnotherRuntime) {
  const std::unique_ptr<Runtime> other = testing::MakeRuntime();
  const ThreadHandle target = StartHeld();
  const ThreadHandle joiner = StartOrFail(*other, "joiner", [&] {
    ManagedScope managed;
    EXPECT_TRUE(target.Join().ok());
  });
  AwaitState(*other, "joiner", ThreadState::kBlocked);
  EXPECT_TRUE(other->AtSafepoint("stop", [](World&) {}).ok());
  Release();
  EXPECT_TRUE(joiner.Join().ok());
}

TEST_F(JoinTest, AHandleOutlivesTheRuntime) {
  ThreadHandle handle;
  {
    const std::unique_ptr<Runtime> runtime = testing::MakeRuntime();
    handle = StartOrFail(*runtime, "", [] {});
  }
  EXPECT_TRUE(handle.Join().ok());
  EXPECT_FALSE(handle.alive());
  EXPECT_FALSE(handle.Interrupt());
  EXPECT_FALSE(handle.Unpark());
}

// Joiners that give up, joiners that stay, and the end of the thread, at once.
// A joiner that is left in the list, or woken in vain, hangs or crashes.
TEST_F(JoinTest, GivingUpRacesWithTheEnd) {
  for (int i = 0; i < Rounds(500); ++i) {
    std::atomic<bool> end{false};
    const ThreadHandle target = StartOrFail(
        *runtime_, "target", [&] { Await([&] { return end.load(); }); });
    std::vector<ThreadHandle> joiners;
    for (int j = 0; j < 4; ++j) {
      joiners.push_back(StartOrFail(*runtime_, "joiner", [&target, j] {
        if (j == 0) {
          while (!target.Join(Deadline::After(std::chrono::microseconds(20)))
                      .ok()) {
          }
        } else {
          const absl::Status status = target.Join();
          EXPECT_TRUE(status.ok() || IsInterrupted(status)) << status;
        }
      }));
    }
    joiners[1].Interrupt();
    end.store(true);
    joiners[2].Interrupt();
    EXPECT_TRUE(target.Join().ok());
    for (const ThreadHandle& joiner : joiners) EXPECT_TRUE(joiner.Join().ok());
  }
}

}  // namespace
}  // namespace stillpoint
