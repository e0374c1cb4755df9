// Handshakes: by the target itself and by proxy, with one, several and all
// threads, from every kind of caller, and against threads that end.

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/safepoint/handshake_fixture.h"
#include "tests/support/await.h"
#include "tests/support/busy_mutators.h"
#include "tests/support/operations.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::BusyMutators;
using ::testing::HasSubstr;
using testing::StartOrFail;
using testing::StopAndCheck;
using testing::TestOperation;

class HandshakeTest : public testing::HandshakeFixture {};
STILLPOINT_IN_ALL_CONFIGURATIONS(HandshakeTest);

// A target that was preempted in the middle of a poll is safe, and a proxy may
// be faster: so not always.
TEST_P(HandshakeTest, TheTargetRunsItAtAPoll) {
  const ThreadHandle target = StartPolling("polling");
  for (int by_target = 0; by_target < 20;) {
    Thread* runner = nullptr;
    const absl::StatusOr<HandshakeResult> result = runtime().Handshake(
        target, "who", [&](Thread&) { runner = Thread::Current(); });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*result, HandshakeResult::kDone);
    ASSERT_NE(runner, nullptr);
    by_target += runner == target.slot();
  }
  EndParked(target);
}

// Incident G9: a target that does not run at all.
TEST_P(HandshakeTest, AProxyRunsItForABlockedTarget) {
  for (const bool managed : {false, true}) {
    const ThreadHandle target =
        StartParked(managed ? "from managed" : "from native", managed);
    ThreadState state = ThreadState::kVacant;
    bool by_target = true;
    const absl::StatusOr<HandshakeResult> result =
        runtime().Handshake(target, "who", [&](Thread& thread) {
          state = thread.state();
          by_target = Thread::Current() == &thread;
        });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*result, HandshakeResult::kDone);
    EXPECT_EQ(state, ThreadState::kBlocked);
    EXPECT_FALSE(by_target);
    EndParked(target);
  }
}

TEST_P(HandshakeTest, BlockedInASystemCall) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const ThreadHandle target = StartOrFail(runtime(), "reading", [&] {
    ManagedScope managed;
    NativeScope native;
    char byte;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
  });
  for (int i = 0; i < 50; ++i) ExpectDone(target);
  const absl::StatusOr<size_t> all =
      runtime().HandshakeAll("all", [](Thread&) {});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(*all, 1u);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_TRUE(target.Join().ok());
  close(ends[0]);
  close(ends[1]);
}

// Incident C4. From an unattached thread the tests above ask.
TEST_P(HandshakeTest, OfOneselfAndOfOthersInEachState) {
  const ThreadHandle other = StartParked("other", true);
  const ThreadHandle polling = StartPolling("polling");
  const ThreadHandle member = StartOrFail(runtime(), "member", [&] {
    const ThreadHandle self = CurrentThreadHandle();
    const auto ask_all = [&] {
      for (int i = 0; i < 20; ++i) {
        ExpectDone(self);
        ExpectDone(other);
        ExpectDone(polling);
      }
    };
    ask_all();
    EXPECT_EQ(self.slot()->state(), ThreadState::kNative);
    {
      ManagedScope managed;
      ask_all();
      EXPECT_EQ(self.slot()->state(), ThreadState::kManaged);
      BlockedScope blocked;
      ask_all();
      EXPECT_EQ(self.slot()->state(), ThreadState::kBlocked);
    }
  });
  EXPECT_TRUE(member.Join().ok());
  EndParked(other);
  EndParked(polling);
}

TEST_P(HandshakeTest, FromAnOperation) {
  const ThreadHandle parked = StartParked("parked", true);
  const ThreadHandle polling = StartPolling("polling");
  const auto ask = [&](World&) {
    ExpectDone(parked);
    ExpectDone(polling);
    const absl::StatusOr<size_t> all =
        runtime().HandshakeAll("all", [](Thread&) {});
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(*all, 2u);
    std::optional<HandshakeResult> settled;
    ASSERT_TRUE(runtime()
                    .HandshakeAsync(
                        parked, "async", [](Thread&) {},
                        [&](HandshakeResult result) { settled = result; })
                    .ok());
    EXPECT_EQ(settled, HandshakeResult::kDone);
  };
  ASSERT_TRUE(runtime().AtSafepoint("asks", ask).ok());
  TestOperation running("asks, running", [&](World&) {
    const absl::StatusOr<HandshakeResult> refused = runtime().Handshake(
        parked, "refused", [](Thread&) { ADD_FAILURE() << "it ran"; });
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("safepoint"));
  });
  running.WithoutSafepoint();
  ASSERT_TRUE(runtime().Execute(running).ok());
  EndParked(parked);
  EndParked(polling);
}

// What the closure sees of the target, the target of the closure, and the
// requester of both: plain memory, for TSan to look at.
TEST_P(HandshakeTest, OrdersPlainMemoryAllWays) {
  uint64_t counter = 0;
  // The same for builds without TSan: the target is in managed code.
  std::atomic<bool> inside{false};
  std::atomic<bool> stop{false};
  const ThreadHandle target = StartOrFail(runtime(), "target", [&] {
    ManagedScope managed;
    Thread& self = Thread::CurrentOrDie();
    while (!stop.load(std::memory_order_relaxed)) {
      inside.store(true, std::memory_order_relaxed);
      ++counter;
      inside.store(false, std::memory_order_relaxed);
      Poll(self);
      if (counter % 16 == 0) NativeScope native;
    }
  });
  std::vector<std::thread> requesters;
  for (int r = 0; r < 2; ++r) {
    requesters.emplace_back([&] {
      AttachScope attached(runtime(), "requester");
      for (int i = 0; i < 200; ++i) {
        uint64_t mine = 0;
        const absl::StatusOr<HandshakeResult> result =
            runtime().Handshake(target, "count", [&](Thread&) {
              EXPECT_FALSE(inside.load(std::memory_order_relaxed));
              mine = ++counter;
            });
        ASSERT_TRUE(result.ok()) << result.status();
        ASSERT_NE(mine, 0u);
      }
    });
  }
  for (std::thread& requester : requesters) requester.join();
  stop.store(true);
  EXPECT_TRUE(target.Join().ok());
}

// A closure may walk the target's stack, whoever runs it.
TEST_P(HandshakeTest, TheSavedContextIsTheTargets) {
  const ThreadHandle parked = StartParked("parked", true);
  const ThreadHandle polling = StartPolling("polling");
  for (const ThreadHandle& target : {parked, polling}) {
    bool inside = false;
    const absl::StatusOr<HandshakeResult> result =
        runtime().Handshake(target, "look", [&](Thread& thread) {
          const ThreadRecord& record = thread.record();
          inside = record.saved.scan_begin() > record.stack.low &&
                   record.saved.scan_begin() < record.stack.high;
        });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(inside);
  }
  EndParked(parked);
  EndParked(polling);
}

TEST_P(HandshakeTest, TwoThreadsOfEachOther) {
  constexpr int kRounds = 300;
  ThreadHandle handles[2];
  std::atomic<int> ready{0};
  std::atomic<int> ran{0};
  std::atomic<int> through{0};
  for (int i = 0; i < 2; ++i) {
    handles[i] = StartOrFail(runtime(), "peer-" + std::to_string(i), [&, i] {
      ready.fetch_add(1);
      ManagedScope managed;
      {
        BlockedScope blocked;
        Await([&] { return ready.load() == 3; });
      }
      for (int round = 0; round < kRounds; ++round) {
        const absl::StatusOr<HandshakeResult> result = runtime().Handshake(
            handles[1 - i], "peer", [&](Thread&) { ran.fetch_add(1); });
        ASSERT_TRUE(result.ok()) << result.status();
        ASSERT_EQ(*result, HandshakeResult::kDone);
      }
      through.fetch_add(1);
      BlockedScope blocked;
      Await([&] { return through.load() == 2; });
    });
  }
  Await([&] { return ready.load() == 2; });
  ready.fetch_add(1);
  for (const ThreadHandle& handle : handles) {
    EXPECT_TRUE(handle.Join().ok());
  }
  EXPECT_EQ(ran.load(), 2 * kRounds);
}

TEST_P(HandshakeTest, WithASetAndWithAll) {
  const ThreadHandle ended = StartOrFail(runtime(), "ended", [] {});
  EXPECT_TRUE(ended.Join().ok());
  std::vector<ThreadHandle> targets;
  for (int i = 0; i < 20; ++i) {
    targets.push_back(StartParked("parked-" + std::to_string(i), i % 2 == 0));
  }
  targets.push_back(StartPolling("polling"));
  std::vector<ThreadHandle> set = targets;
  set.push_back(ended);
  set.push_back(ThreadHandle());
  std::atomic<int> ran{0};
  const auto count = [&](Thread&) { ran.fetch_add(1); };
  const absl::StatusOr<size_t> some = runtime().Handshake(set, "set", count);
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(*some, 21u);
  EXPECT_EQ(ran.load(), 21);
  const absl::StatusOr<size_t> all = runtime().HandshakeAll("all", count);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(*all, 21u);
  EXPECT_EQ(ran.load(), 42);
  const absl::StatusOr<size_t> none =
      runtime().Handshake(std::vector<ThreadHandle>(), "none", count);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(*none, 0u);
  EXPECT_EQ(runtime().ThreadCount(), 21u);
  for (const ThreadHandle& target : targets) EndParked(target);
}

TEST_P(HandshakeTest, GoneAndOfAnotherRuntime) {
  const ThreadHandle ended = StartOrFail(runtime(), "ended", [] {});
  EXPECT_TRUE(ended.Join().ok());
  const auto never = [](Thread&) { ADD_FAILURE() << "it ran"; };
  const absl::StatusOr<HandshakeResult> gone =
      runtime().Handshake(ended, "gone", never);
  ASSERT_TRUE(gone.ok()) << gone.status();
  EXPECT_EQ(*gone, HandshakeResult::kGone);
  std::unique_ptr<Runtime> other = testing::MakeRuntime();
  ASSERT_NE(other, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(
      other->Handshake(ended, "foreign", never).status()));
  AttachScope elsewhere(*other, "elsewhere");
  const absl::Status refused =
      runtime().Handshake(ended, "elsewhere", never).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
}

// A target on its way out that does not come back to Managed is gone, and its
// requester is told by its end.
TEST_P(HandshakeTest, TheTargetEndsWhileItIsAsked) {
  for (int i = 0; i < 50; ++i) {
    std::atomic<bool> asked{false};
    std::atomic<int> ran{0};
    const ThreadHandle target = StartOrFail(runtime(), "target", [&] {
      ManagedScope managed;
      // No poll: it is asked in Managed, and leaves.
      while (!asked.load()) {
      }
    });
    testing::AwaitState(runtime(), "target", ThreadState::kManaged);
    std::thread requester([&] {
      asked.store(true);
      const absl::StatusOr<HandshakeResult> result = runtime().Handshake(
          target, "racing", [&](Thread&) { ran.fetch_add(1); });
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(ran.load(), *result == HandshakeResult::kDone ? 1 : 0);
    });
    requester.join();
    EXPECT_TRUE(target.Join().ok());
  }
}

TEST_P(HandshakeTest, AsyncIsRunByTheTargetOrHereOrNotAtAll) {
  std::atomic<int> ran{0};
  std::atomic<int> done{0};
  std::atomic<int> gone{0};
  const auto held = std::make_shared<int>(0);
  const auto ask = [&](const ThreadHandle& target) {
    const absl::Status asked = runtime().HandshakeAsync(
        target, "async", [&ran, held](Thread&) { ran.fetch_add(1); },
        [&done, &gone, held](HandshakeResult result) {
          (result == HandshakeResult::kDone ? done : gone).fetch_add(1);
        });
    EXPECT_TRUE(asked.ok()) << asked;
  };
  // Safe: here.
  const ThreadHandle parked = StartParked("parked", false);
  ask(parked);
  EXPECT_EQ(ran.load(), 1);
  EXPECT_EQ(done.load(), 1);
  // Polling: there.
  const ThreadHandle polling = StartPolling("polling");
  ask(polling);
  Await([&] { return done.load() == 2; });
  // Ended: nowhere.
  EndParked(parked);
  ask(parked);
  EXPECT_EQ(gone.load(), 1);
  // In Managed when asked, and leaves for good without a poll: gone by its end.
  std::atomic<bool> asked{false};
  const ThreadHandle leaving = StartOrFail(runtime(), "leaving", [&] {
    ManagedScope managed;
    while (!asked.load()) {
    }
  });
  testing::AwaitState(runtime(), "leaving", ThreadState::kManaged);
  ask(leaving);
  asked.store(true);
  EXPECT_TRUE(leaving.Join().ok());
  EXPECT_EQ(gone.load(), 2);
  // On its way back: there.
  std::atomic<bool> leave{false};
  std::atomic<bool> come_back{false};
  const ThreadHandle away = StartOrFail(runtime(), "away", [&] {
    ManagedScope managed;
    while (!leave.load()) {
    }
    {
      NativeScope native;
      Await([&] { return come_back.load(); });
    }
    // Before any managed code.
    EXPECT_EQ(done.load(), 3);
  });
  testing::AwaitState(runtime(), "away", ThreadState::kManaged);
  ask(away);
  leave.store(true);
  testing::AwaitState(runtime(), "away", ThreadState::kNative);
  EXPECT_EQ(done.load(), 2);
  come_back.store(true);
  EXPECT_TRUE(away.Join().ok());
  EXPECT_EQ(done.load(), 3);
  EXPECT_EQ(ran.load(), 3);
  EndParked(polling);
  // What they held was destroyed with them.
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(
      runtime().HandshakeAsync(polling, "null", nullptr)));
}

// A target that does not poll: the requester gets an answer when the runtime
// ends, and leaves nothing behind.
TEST_P(HandshakeTest, ShutdownEndsTheWaitForATargetThatDoesNotPoll) {
  std::atomic<bool> release{false};
  const ThreadHandle deaf = StartOrFail(runtime(), "deaf", [&] {
    ManagedScope managed;
    while (!release.load()) {
    }
  });
  testing::AwaitState(runtime(), "deaf", ThreadState::kManaged);
  const ThreadHandle requester = StartOrFail(runtime(), "requester", [&] {
    const absl::StatusOr<HandshakeResult> result = runtime().Handshake(
        deaf, "unheard", [](Thread&) { ADD_FAILURE() << "it ran"; });
    EXPECT_TRUE(absl::IsUnavailable(result.status())) << result.status();
  });
  testing::AwaitState(runtime(), "requester", ThreadState::kBlocked);
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      runtime().Shutdown(Deadline::After(std::chrono::milliseconds(1)))));
  EXPECT_TRUE(requester.Join().ok());
  release.store(true);
  EXPECT_TRUE(deaf.Join().ok());
}

// Many requesters of few targets that stop, leave and come back, among stops.
TEST_P(HandshakeTest, ManyRequestersOfBusyTargets) {
  std::atomic<int> ran{0};
  {
    BusyMutators busy(runtime(), canary(), 2);
    const ThreadHandle wanderer = StartOrFail(runtime(), "wanderer", [&] {
      Thread& self = Thread::CurrentOrDie();
      while (!self.interrupted()) {
        ManagedScope managed;
        StopCanary::Work work(canary());
      }
    });
    std::vector<std::thread> requesters;
    for (int r = 0; r < 3; ++r) {
      requesters.emplace_back([&] {
        for (int i = 0; i < 60; ++i) {
          const absl::StatusOr<HandshakeResult> result = runtime().Handshake(
              wanderer, "one", [&](Thread&) { ran.fetch_add(1); });
          ASSERT_TRUE(result.ok()) << result.status();
          ASSERT_EQ(*result, HandshakeResult::kDone);
          if (i % 10 != 0) continue;
          const absl::StatusOr<size_t> all =
              runtime().HandshakeAll("all", [](Thread&) {});
          ASSERT_TRUE(all.ok()) << all.status();
          EXPECT_GE(*all, 3u);
          StopAndCheck(runtime(), canary());
        }
      });
    }
    for (std::thread& requester : requesters) requester.join();
    EXPECT_TRUE(wanderer.Interrupt());
    EXPECT_TRUE(wanderer.Join().ok());
  }
  EXPECT_EQ(ran.load(), 3 * 60);
}

}  // namespace
}  // namespace stillpoint
