// The life of a started thread, under each start protocol and fence mode.

#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/os/os_thread.h"
#include "runtime/stillpoint.h"
#include "tests/base/death.h"
#include "tests/os/thread_watch.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::MakeRuntime;
using testing::OsThreadName;
using testing::RuntimeTest;
using testing::StartOrFail;
using testing::TestOptions;

class StartTest : public RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(StartTest);

TEST_P(StartTest, RunsTheBodyInNativeAndEnds) {
  ThreadState state = ThreadState::kVacant;
  pid_t tid = 0;
  const ThreadHandle handle = StartOrFail(runtime(), "worker", [&] {
    Thread& self = Thread::CurrentOrDie();
    state = self.state();
    tid = self.tid();
    EXPECT_EQ(tid, CurrentTid());
    EXPECT_EQ(self.name(), "worker");
    ManagedScope managed;
    Poll();
  });
  EXPECT_TRUE(handle.Join().ok());
  EXPECT_EQ(state, ThreadState::kNative);
  EXPECT_NE(tid, 0);
  EXPECT_FALSE(handle.alive());
  testing::AwaitGone(tid);
  EXPECT_EQ(runtime().ThreadCount(), 0u);
}

TEST_P(StartTest, CountsThreadsFromStartToEnd) {
  std::atomic<bool> go_on{false};
  std::vector<ThreadHandle> handles;
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(runtime().ThreadCount(), i);
    handles.push_back(StartOrFail(
        runtime(), "", [&] { Await([&] { return go_on.load(); }); }));
    EXPECT_TRUE(handles.back().alive());
  }
  EXPECT_EQ(runtime().ThreadCount(), 10u);
  go_on.store(true);
  for (const ThreadHandle& handle : handles) EXPECT_TRUE(handle.Join().ok());
  Await([&] { return runtime().ThreadCount() == 0; });
}

TEST_P(StartTest, TheNameIsShownByTheSystem) {
  const struct {
    std::string name;
    std::string shown;
  } cases[] = {{"gc-worker-7", "gc-worker-7"},
               {"a name of more than fifteen bytes", "a name of more "},
               {"vierzehn Bytes ü", "vierzehn Bytes "}};
  for (const auto& [name, shown] : cases) {
    std::string seen;
    const ThreadHandle handle = StartOrFail(runtime(), name, [&] {
      // The whole name for the runtime's logs, what fits for the system's.
      EXPECT_EQ(Thread::CurrentOrDie().name(), name);
      seen = OsThreadName(CurrentTid());
    });
    ASSERT_TRUE(handle.Join().ok());
    EXPECT_EQ(seen, shown);
  }
}

TEST_P(StartTest, ANamelessThreadIsNamedAfterItsId) {
  std::set<std::string> names;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(StartOrFail(runtime(), "",
                            [&] {
                              const Thread& self = Thread::CurrentOrDie();
                              const std::string name(self.name());
                              EXPECT_EQ(name,
                                        "thread-" + std::to_string(self.id()));
                              EXPECT_EQ(OsThreadName(CurrentTid()), name);
                              names.insert(name);
                            })
                    .Join()
                    .ok());
  }
  EXPECT_EQ(names.size(), 5u);
}

// The runtime's default, and a thread's own in its place.
TEST_P(StartTest, StackSizesAreHonoured) {
  Options options = TestOptions(GetParam());
  options.stack_size = 1 << 20;
  Make(options);
  const auto stack_of = [&](size_t wanted) {
    StackBounds bounds;
    ThreadOptions thread_options;
    thread_options.stack_size = wanted;
    absl::StatusOr<ThreadHandle> started =
        runtime().Start(thread_options, [&] { bounds = CurrentStackBounds(); });
    EXPECT_TRUE(started.ok()) << started.status();
    EXPECT_TRUE(started->Join().ok());
    return bounds.high - bounds.low;
  };
  // libc may count its guard and its own block in, and may take the stack of a
  // thread that has ended, up to four times as large.
  constexpr size_t kSlack = 64 * 1024;
  for (const size_t wanted : {size_t{1} << 18, size_t{1} << 26}) {
    const size_t size = stack_of(wanted);
    EXPECT_GE(size + kSlack, wanted);
    EXPECT_LE(size, 4 * wanted + kSlack);
  }
  const size_t size = stack_of(0);
  EXPECT_GE(size + kSlack, size_t{1} << 20);
  EXPECT_LE(size, (size_t{4} << 20) + kSlack);
}

TEST_P(StartTest, CapturesDieOnTheThreadBeforeItsEndIsSeen) {
  struct Witness {
    std::atomic<pid_t>* died_on;
    ~Witness() { died_on->store(CurrentTid()); }
  };
  std::atomic<pid_t> died_on{0};
  pid_t tid = 0;
  auto witness = std::make_unique<Witness>(Witness{&died_on});
  died_on.store(0);  // of the temporary
  const ThreadHandle handle =
      StartOrFail(runtime(), "", [&tid, witness = std::move(witness)] {
        tid = CurrentTid();
        EXPECT_NE(witness, nullptr);
      });
  ASSERT_TRUE(handle.Join().ok());
  EXPECT_EQ(died_on.load(), tid);
}

TEST_P(StartTest, ThreadsStartThreads) {
  std::atomic<int> ran{0};
  const ThreadHandle outer = StartOrFail(runtime(), "outer", [&] {
    ManagedScope managed;  // Start leaves it for as long as it waits
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(StartOrFail(runtime(), "inner", [&] { ran.fetch_add(1); })
                      .Join()
                      .ok());
      EXPECT_EQ(Thread::CurrentOrDie().state(), ThreadState::kManaged);
    }
  });
  ASSERT_TRUE(outer.Join().ok());
  EXPECT_EQ(ran.load(), 5);
}

TEST_P(StartTest, TheSignalMaskIsInherited) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  sigset_t mask;
  ASSERT_TRUE(StartOrFail(runtime(), "",
                          [&] { pthread_sigmask(SIG_SETMASK, nullptr, &mask); })
                  .Join()
                  .ok());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(sigismember(&mask, SIGUSR2), 1);
  EXPECT_EQ(sigismember(&mask, SIGUSR1), 0);
}

TEST_P(StartTest, NothingToRunIsAnError) {
  const absl::StatusOr<ThreadHandle> started = runtime().Start(nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(started.status()));
  EXPECT_EQ(runtime().ThreadCount(), 0u);
}

TEST_P(StartTest, NoThreadStartsAfterShutdownHasBegun) {
  ASSERT_TRUE(runtime().Shutdown(Deadline::Infinite()).ok());
  bool ran = false;
  const absl::StatusOr<ThreadHandle> started =
      runtime().Start([&] { ran = true; });
  EXPECT_TRUE(absl::IsFailedPrecondition(started.status()));
  EXPECT_EQ(runtime().ThreadCount(), 0u);
  EXPECT_FALSE(ran);
}

class StartDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Runs `body` on a started thread, in the process of a death test.
void RunOnAThread(absl::AnyInvocable<void()> body) {
  const std::unique_ptr<Runtime> runtime = MakeRuntime();
  (void)StartOrFail(*runtime, "culprit", std::move(body)).Join();
}

TEST_F(StartDeathTest, ABodyThatReturnsInManaged) {
  EXPECT_DIES_SAYING(RunOnAThread([] { new ManagedScope(); }),
                     "the body of thread culprit returned in Managed");
}

TEST_F(StartDeathTest, ABodyThatReturnsInBlocked) {
  EXPECT_DIES_SAYING(RunOnAThread([] {
                       new ManagedScope();
                       new BlockedScope();
                     }),
                     "the body of thread culprit returned in Blocked");
}

TEST_F(StartDeathTest, ABodyThatReturnsWithALock) {
  static constexpr LockRank kRank{"Kept_lock", kFirstEmbedderRank, "test"};
  static RankedMutex mutex(kRank);
  EXPECT_DIES_SAYING(
      RunOnAThread([]() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Lock(); }),
      "the body of thread culprit returned holding a ranked lock");
}

TEST_F(StartDeathTest, AnExceptionThatLeavesABodyEndsTheProcess) {
  // The message is the C++ library's.
  EXPECT_EXIT(RunOnAThread([] { throw 42; }),
              ::testing::KilledBySignal(SIGABRT), "terminate");
}

}  // namespace
}  // namespace stillpoint
