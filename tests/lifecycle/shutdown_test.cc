// The end of a runtime, while the process goes on.

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/await.h"
#include "tests/support/busy_mutators.h"
#include "tests/support/operations.h"
#include "tests/support/recording_sink.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using ::testing::AllOf;
using testing::Await;
using testing::AwaitState;
using testing::BusyMutators;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RecordingSink;
using testing::StartOrFail;
using testing::StopAndCheck;
using testing::TestOperation;

Deadline Soon() { return Deadline::After(std::chrono::milliseconds(20)); }

class ShutdownTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(ShutdownTest);

TEST_P(ShutdownTest, InterruptsWaitersAndWaitsForAll) {
  std::atomic<int> ended{0};
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(StartOrFail(runtime(), "waiter", [&, i] {
      if (i % 2 == 0) {
        EXPECT_TRUE(IsInterrupted(Park()));
      } else {
        ManagedScope managed;
        EXPECT_TRUE(IsInterrupted(Park()));
        StopCanary::Work work(canary());
      }
      ended.fetch_add(1);
    }));
  }
  // One that joins another, and one that waits more than once.
  threads.push_back(StartOrFail(runtime(), "joiner", [&, target = threads[0]] {
    const absl::Status joined = target.Join();
    EXPECT_TRUE(joined.ok() || IsInterrupted(joined)) << joined;
    ended.fetch_add(1);
  }));
  threads.push_back(StartOrFail(runtime(), "stubborn", [&] {
    EXPECT_TRUE(IsInterrupted(Park()));
    EXPECT_TRUE(IsInterrupted(Park()));
    EXPECT_TRUE(IsInterrupted(Park()));
    ended.fetch_add(1);
  }));
  const absl::Status shut_down = runtime().Shutdown(Deadline::Infinite());
  EXPECT_TRUE(shut_down.ok()) << shut_down;
  EXPECT_EQ(ended.load(), 6);
  EXPECT_EQ(runtime().ThreadCount(), 0u);
  for (const ThreadHandle& thread : threads) {
    EXPECT_FALSE(thread.alive());
    EXPECT_FALSE(thread.Interrupt());
    EXPECT_TRUE(thread.Join().ok());
  }
}

TEST_P(ShutdownTest, CanBeCalledAgain) {
  EXPECT_TRUE(runtime().Shutdown(Deadline::Infinite()).ok());
  EXPECT_TRUE(runtime().Shutdown(Soon()).ok());
  EXPECT_TRUE(runtime().Shutdown(Deadline::Infinite()).ok());
}

// Incident D7: what goes on after the deadline is named, and the next call
// waits for it again.
TEST_P(ShutdownTest, NamesTheThreadsThatRemain) {
  std::atomic<bool> stop{false};
  const ThreadHandle thread = StartOrFail(
      runtime(), "offender", [&] { Await([&] { return stop.load(); }); });
  std::atomic<bool> guest_may_go{false};
  std::thread guest([&] {
    AttachScope attached(runtime(), "foreigner");
    EXPECT_TRUE(attached.status().ok());
    Await([&] { return guest_may_go.load(); });
  });
  AwaitState(runtime(), "offender", ThreadState::kNative);
  AwaitState(runtime(), "foreigner", ThreadState::kNative);
  const absl::Status late = runtime().Shutdown(Soon());
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(std::string(late.message()),
              AllOf(ContainsRegex("offender \\(Native, tid [0-9]+, CPU "
                                  "[0-9.]+[mu]?s of [0-9.]+[mu]?s\\)"),
                    HasSubstr("foreigner")));
  stop.store(true);
  EXPECT_TRUE(thread.Join().ok());
  const absl::Status still = runtime().Shutdown(Soon());
  EXPECT_TRUE(absl::IsDeadlineExceeded(still)) << still;
  EXPECT_THAT(std::string(still.message()),
              AllOf(Not(HasSubstr("offender")), HasSubstr("foreigner")));
  guest_may_go.store(true);
  guest.join();
  EXPECT_TRUE(runtime().Shutdown(Deadline::Infinite()).ok());
}

TEST_P(ShutdownTest, DestructorTellsTheSinkWhoRemains) {
  RecordingSink sink;
  Options options = testing::TestOptions(GetParam());
  options.event_sink = &sink;
  options.shutdown_timeout = std::chrono::milliseconds(1);
  std::unique_ptr<Runtime> short_lived = testing::MakeRuntime(options);
  ASSERT_NE(short_lived, nullptr);
  std::atomic<bool> stop{false};
  const ThreadHandle thread = StartOrFail(
      *short_lived, "left behind", [&] { Await([&] { return stop.load(); }); });
  AwaitState(*short_lived, "left behind", ThreadState::kNative);
  short_lived = nullptr;
  EXPECT_THAT(sink.messages(),
              Contains(AllOf(HasSubstr("W "), HasSubstr("left behind"))));
  // The handle still tells the truth.
  EXPECT_TRUE(thread.alive());
  stop.store(true);
  EXPECT_TRUE(thread.Join().ok());
}

TEST_P(ShutdownTest, RefusedWhereItWouldHang) {
  const ThreadHandle thread = StartOrFail(runtime(), "managed", [&] {
    ManagedScope managed;
    const absl::Status refused = runtime().Shutdown(Deadline::Infinite());
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("Managed"));
  });
  EXPECT_TRUE(thread.Join().ok());
  // Nothing was done: the runtime works.
  StopAndCheck(runtime(), canary());
}

TEST_P(ShutdownTest, FromAMemberDoesNotWaitForItself) {
  std::atomic<bool> shut_down{false};
  const ThreadHandle other = StartOrFail(
      runtime(), "other", [] { EXPECT_TRUE(IsInterrupted(Park())); });
  const ThreadHandle member = StartOrFail(runtime(), "member", [&] {
    const absl::Status done = runtime().Shutdown(Deadline::Infinite());
    EXPECT_TRUE(done.ok()) << done;
    EXPECT_FALSE(other.alive());
    EXPECT_EQ(runtime().ThreadCount(), 1u);
    shut_down.store(true);
  });
  EXPECT_TRUE(member.Join().ok());
  EXPECT_TRUE(shut_down.load());
}

TEST_P(ShutdownTest, FromTwoMembersWaitsForNeither) {
  const auto shuts_down = [&] {
    const absl::Status done = runtime().Shutdown(Deadline::Infinite());
    EXPECT_TRUE(done.ok()) << done;
  };
  ThreadHandle second;
  std::atomic<bool> known{false};
  const ThreadHandle first = StartOrFail(runtime(), "first", [&] {
    Await([&] { return known.load(); });
    shuts_down();
    while (IsInterrupted(second.Join())) {
    }
    EXPECT_FALSE(second.alive());
  });
  second = StartOrFail(runtime(), "second", shuts_down);
  known.store(true);
  EXPECT_TRUE(first.Join().ok());
}

// The thread that destroys the runtime may be one of its members, in Native;
// it detaches afterwards, or when it ends.
TEST_P(ShutdownTest, DestroyedByAnAttachedThread) {
  std::thread guest([&] {
    std::unique_ptr<Runtime> own =
        testing::MakeRuntime(testing::TestOptions(GetParam()));
    ASSERT_NE(own, nullptr);
    ASSERT_TRUE(own->AttachCurrentThread("owner").ok());
    {
      ManagedScope managed;
      Poll();
    }
    own = nullptr;
    EXPECT_NE(Thread::Current(), nullptr);
    // The end of this thread detaches it.
  });
  guest.join();
  std::thread detacher([&] {
    std::unique_ptr<Runtime> own =
        testing::MakeRuntime(testing::TestOptions(GetParam()));
    ASSERT_NE(own, nullptr);
    ASSERT_TRUE(own->AttachCurrentThread("owner").ok());
    EXPECT_TRUE(own->Shutdown(Deadline::Infinite()).ok());
    EXPECT_TRUE(own->DetachCurrentThread().ok());
    EXPECT_EQ(Thread::Current(), nullptr);
    EXPECT_EQ(own->ThreadCount(), 0u);
  });
  detacher.join();
}

// A thread that never polls: the operation that waits for it ends with an error
// instead of never, and so does what is queued behind it.
TEST_P(ShutdownTest, OperationThatCannotStopTheWorldEndsUnavailable) {
  std::atomic<bool> inside{false};
  std::atomic<bool> stop{false};
  const ThreadHandle spinner = StartOrFail(runtime(), "spinner", [&] {
    ManagedScope managed;
    inside.store(true);
    while (!stop.load()) {
    }
    // It leaves Managed without a poll, so it does not park.
  });
  Await([&] { return inside.load(); });
  std::atomic<int> unavailable{0};
  std::vector<std::thread> requesters;
  std::atomic<int> asking{0};
  for (int i = 0; i < 2; ++i) {
    requesters.emplace_back([&] {
      AttachScope attached(runtime(), "requester");
      // Nobody can attach once the first stop is on.
      asking.fetch_add(1);
      Await([&] { return asking.load() == 2; });
      const absl::Status status = runtime().AtSafepoint(
          "wanted", [](World&) { ADD_FAILURE() << "ran"; });
      if (absl::IsUnavailable(status)) unavailable.fetch_add(1);
      EXPECT_THAT(std::string(status.message()), HasSubstr("wanted"));
    });
  }
  // Both have asked: one wakes up the VM thread or is the stopper itself, and
  // what waits in the queue sleeps (nothing else sets bits of the wait word).
  Await([&] {
    int waiting = 0;
    bool stop_is_on = false;
    for (const PinnedThread& thread : runtime().Threads()) {
      stop_is_on |=
          StopControl::StopIsOn(thread.thread().control().stop_word.load());
      waiting += thread.name() == "requester" &&
                 thread.thread().record().wait.Peek() != 0;
    }
    return stop_is_on && waiting == (GetParam().requester_may_run ? 1 : 2);
  });
  const absl::Status late = runtime().Shutdown(Soon());
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(std::string(late.message()), HasSubstr("spinner"));
  for (std::thread& requester : requesters) requester.join();
  EXPECT_EQ(unavailable.load(), 2);
  stop.store(true);
  EXPECT_TRUE(spinner.Join().ok());
}

// What was queued before the end still runs.
TEST_P(ShutdownTest, QueuedOperationsRunBeforeTheEnd) {
  std::atomic<bool> running{false};
  std::atomic<bool> closing{false};
  std::atomic<bool> ask{false};
  std::atomic<int> done{0};
  // Shutdown refuses requests first, and then interrupts this one.
  StartOrFail(runtime(), "witness", [&] {
    EXPECT_TRUE(IsInterrupted(Park()));
    closing.store(true);
  });
  StartOrFail(runtime(), "second", [&] {
    Await([&] { return ask.load(); });
    const bool ok =
        runtime().AtSafepoint("queued", [&](World&) { canary().Check(); }).ok();
    EXPECT_TRUE(ok);
    done.fetch_add(1);
  });
  AwaitState(runtime(), "witness", ThreadState::kBlocked);
  AwaitState(runtime(), "second", ThreadState::kNative);
  TestOperation slow("slow", [&](World&) {
    running.store(true);
    Await([&] { return closing.load(); });
  });
  std::thread first([&] {
    const bool ok = runtime().Execute(slow).ok();
    EXPECT_TRUE(ok);
    done.fetch_add(1);
  });
  Await([&] { return running.load(); });
  ask.store(true);
  Await([&] {
    for (const PinnedThread& thread : runtime().Threads()) {
      // In Execute, past the push: nothing else sets bits of the word.
      if (thread.name() == "second" &&
          thread.thread().record().wait.Peek() != 0) {
        return true;
      }
    }
    return false;
  });
  EXPECT_TRUE(runtime().Shutdown(Deadline::Infinite()).ok());
  first.join();
  EXPECT_EQ(done.load(), 2);
}

// Incident E5: stops from four threads, without a pause, while the runtime is
// shut down.
TEST_P(ShutdownTest, ContinuousStopsFromFourThreads) {
  for (int round = 0; round < 10; ++round) {
    if (round > 0) Make(testing::TestOptions(GetParam()));
    std::atomic<int> stops{0};
    std::vector<std::thread> stoppers;
    for (int i = 0; i < 4; ++i) {
      stoppers.emplace_back([&] {
        while (true) {
          const absl::Status stopped =
              runtime().AtSafepoint("stop", [&](World&) { canary().Check(); });
          if (!stopped.ok()) {
            EXPECT_TRUE(absl::IsFailedPrecondition(stopped));
            return;
          }
          stops.fetch_add(1);
        }
      });
    }
    {
      BusyMutators busy(runtime(), canary(), 1);
      Await([&] { return stops.load() > 20; });
    }
    const absl::Status ended = runtime().Shutdown(Deadline::Infinite());
    EXPECT_TRUE(ended.ok()) << ended;
    for (std::thread& stopper : stoppers) stopper.join();
    End();
  }
}

// A runtime after another, many times; each with threads and stops.
TEST_P(ShutdownTest, CreateAgain) {
  for (int round = 0; round < 10; ++round) {
    Make(testing::TestOptions(GetParam()));
    BusyMutators busy(runtime(), canary(), 2);
    busy.AwaitProgress();
    StopAndCheck(runtime(), canary());
  }
}

// Who is counted, but not in the table yet, has not left.
TEST(ShutdownCountTest, CountsAThreadThatIsBeingStarted) {
  std::unique_ptr<Runtime> runtime = testing::MakeRuntime();
  std::atomic<bool> stopped{false};
  std::atomic<bool> go_on{false};
  std::thread stopper([&] {
    EXPECT_TRUE(runtime
                    ->AtSafepoint("hold",
                                  [&](World&) {
                                    stopped.store(true);
                                    testing::Await(
                                        [&] { return go_on.load(); });
                                  })
                    .ok());
  });
  testing::Await([&] { return stopped.load(); });
  // Waits for the end of the stop before it publishes the thread.
  std::thread starter([&] { testing::StartOrFail(*runtime, "new", [] {}); });
  testing::Await([&] { return runtime->ThreadCount() == 1; });
  const absl::Status shutdown =
      runtime->Shutdown(Deadline::AtMonotonicNanos(0));
  EXPECT_TRUE(absl::IsDeadlineExceeded(shutdown)) << shutdown;
  EXPECT_THAT(std::string(shutdown.message()), HasSubstr("being started"));
  go_on.store(true);
  stopper.join();
  starter.join();
}

}  // namespace
}  // namespace stillpoint
