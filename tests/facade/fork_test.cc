// fork(2) with the world stopped (incidents F1, F2, F4).

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "tests/base/sanitizers.h"
#include "tests/os/seccomp_filter.h"
#include "tests/support/await.h"
#include "tests/support/busy_mutators.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::BusyMutators;
using ::testing::HasSubstr;
using testing::kAsan;
using testing::kTsan;
using testing::MakeRuntime;
using testing::RunWithoutThreadCreation;
using testing::StartOrFail;
using testing::StopAndCheck;

// The exit code of the child; -1 if it was killed.
int ExitCode(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// In the child: everything that it may do with the runtime that ended in it.
// 0, or the number of what went wrong.
int UseEndedRuntime(Runtime& runtime, const ThreadHandle& thread) {
  if (Thread::Current() != nullptr) return 10;
  if (runtime.ThreadCount() != 0 || runtime.Threads().size() != 0) return 11;
  if (thread.alive() || !thread.Join().ok()) return 12;
  if (thread.Interrupt() || thread.Unpark()) return 13;
  // What follows allocates. g++'s ASan does not prepare its allocator for fork,
  // and another thread of the parent may have been in it.
  if (kAsan) return 0;
  if (!absl::IsFailedPrecondition(runtime.AtSafepoint("late", [](World&) {}))) {
    return 14;
  }
  if (!absl::IsFailedPrecondition(runtime.Start([] {}).status())) return 15;
  if (!absl::IsFailedPrecondition(runtime.AttachCurrentThread())) return 16;
  if (!runtime.Shutdown(Deadline::Infinite()).ok()) return 17;
  return 0;
}

// In the child: a runtime of its own, with threads.
int UseNewRuntime() {
  // TSan forbids threads in the child of a process that had some.
  if (kTsan || kAsan) return 0;
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create();
  if (!runtime.ok()) return 20;
  bool ran = false;
  absl::StatusOr<ThreadHandle> thread = (*runtime)->Start([&] {
    ManagedScope managed;
    Poll();
    ran = true;
  });
  if (!thread.ok()) return 21;
  if (!(*runtime)->AtSafepoint("new", [](World&) {}).ok()) return 22;
  if (!thread->Join().ok() || !ran) return 23;
  if (!(*runtime)->AttachCurrentThread("child").ok()) return 24;
  if (!(*runtime)->DetachCurrentThread().ok()) return 25;
  return (*runtime)->Shutdown(Deadline::Infinite()).ok() ? 0 : 26;
}

class ForkTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(ForkTest);

TEST_P(ForkTest, TheChildMayGoOnAndTheParentDoes) {
  constexpr int kForks = 10;
  BusyMutators busy(runtime(), canary(), 2);
  std::atomic<bool> stop{false};
  // Starts, ends and stops all the time, so that a fork falls into each.
  std::thread starter([&] {
    while (!stop.load()) {
      EXPECT_TRUE(StartOrFail(runtime(), "short", [] {}).Join().ok());
    }
  });
  std::thread stopper([&] {
    while (!stop.load()) StopAndCheck(runtime(), canary());
  });
  const ThreadHandle parked =
      StartOrFail(runtime(), "parked", [] { EXPECT_TRUE(Park().ok()); });
  ASSERT_TRUE(runtime().AttachCurrentThread("main").ok());
  for (int i = 0; i < kForks; ++i) {
    const absl::StatusOr<pid_t> child = runtime().Fork();
    ASSERT_TRUE(child.ok()) << child.status();
    if (*child == 0) {
      const int wrong = UseEndedRuntime(runtime(), parked);
      _exit(wrong != 0 ? wrong : UseNewRuntime());
    }
    EXPECT_EQ(ExitCode(*child), 0);
    busy.AwaitProgress();
  }
  ASSERT_TRUE(runtime().DetachCurrentThread().ok());
  stop.store(true);
  starter.join();
  stopper.join();
  EXPECT_TRUE(parked.Unpark());
  EXPECT_TRUE(parked.Join().ok());
}

TEST_P(ForkTest, AFailedForkLetsTheWorldGo) {
  BusyMutators busy(runtime(), canary(), 2);
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;
  if (!RunWithoutThreadCreation([&] {
        const absl::Status status = runtime().Fork().status();
        code = status.code();
        message = std::string(status.message());
      })) {
    GTEST_SKIP() << "the kernel has no seccomp filters";
  }
  EXPECT_EQ(code, absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(message, HasSubstr("fork failed"));
  busy.AwaitProgress();
  StopAndCheck(runtime(), canary());
}

TEST_P(ForkTest, TheWorldStandsStillBetweenPrepareAndParent) {
  BusyMutators busy(runtime(), canary(), 2);
  busy.AwaitProgress();
  ASSERT_TRUE(runtime().ForkPrepare().ok());
  const uint64_t before = busy.Progress();
  // A request from here would wait for itself.
  EXPECT_TRUE(absl::IsFailedPrecondition(
      runtime().AtSafepoint("inside", [](World&) {})));
  EXPECT_EQ(busy.UnprotectedSum(), busy.UnprotectedSum());
  EXPECT_EQ(busy.Progress(), before);
  runtime().ForkParent();
  busy.AwaitProgress();
}

TEST(ForkRefusalTest, WhereItCannotBe) {
  auto runtime = MakeRuntime();
  absl::StatusCode managed_code = absl::StatusCode::kOk;
  EXPECT_TRUE(StartOrFail(*runtime, "managed",
                          [&] {
                            ManagedScope managed;
                            managed_code = runtime->Fork().status().code();
                          })
                  .Join()
                  .ok());
  EXPECT_EQ(managed_code, absl::StatusCode::kFailedPrecondition);
  absl::StatusCode operation_code = absl::StatusCode::kOk;
  EXPECT_TRUE(runtime
                  ->AtSafepoint("operation",
                                [&](World&) {
                                  operation_code =
                                      runtime->Fork().status().code();
                                })
                  .ok());
  EXPECT_EQ(operation_code, absl::StatusCode::kFailedPrecondition);
}

// The child leaves what it was in when it was made.
TEST(ForkChildTest, ReturnsFromScopeAndBody) {
  auto runtime = MakeRuntime();
  pid_t child = -1;
  {
    AttachScope attached(*runtime);
    AttachScope nested(*runtime);
    child = runtime->Fork().value_or(-1);
  }
  if (child == 0) _exit(Thread::Current() == nullptr ? 5 : 6);
  EXPECT_EQ(ExitCode(child), 5);
  // Destroyed after the thread is through with the runtime.
  struct ExitAtEnd {
    bool in_child = false;
    ~ExitAtEnd() {
      if (in_child) _exit(7);
    }
  };
  const ThreadHandle forks = StartOrFail(*runtime, "forks", [&] {
    static thread_local ExitAtEnd at_end;
    const pid_t child = runtime->Fork().value_or(-1);
    at_end.in_child = child == 0;
    if (child != 0) {
      EXPECT_EQ(ExitCode(child), 7);
    }
  });
  EXPECT_TRUE(forks.Join().ok());
}

// What the end of a runtime promises holds: a late thread parks. A fork's stop
// would have let it in.
// In the child the thread is attached no more.
TEST(ForkChildTest, AForeignThreadGetsItsTimerSlackBack) {
  Options options = testing::TestOptions();
  options.timer_slack = std::chrono::nanoseconds(1);
  const std::unique_ptr<Runtime> runtime = MakeRuntime(options);
  const std::chrono::nanoseconds own = CurrentTimerSlack().value();
  AttachScope attached(*runtime);
  ASSERT_TRUE(attached.status().ok());
  const absl::StatusOr<pid_t> child = runtime->Fork();
  ASSERT_TRUE(child.ok()) << child.status();
  if (*child == 0) _exit(CurrentTimerSlack().value() == own ? 9 : 10);
  EXPECT_EQ(ExitCode(*child), 9);
  EXPECT_EQ(CurrentTimerSlack().value(), *options.timer_slack);
}

TEST(ForkRefusalTest, AfterTheEndNobodyIsLetIn) {
  Options options = testing::TestOptions();
  options.shutdown_timeout = std::chrono::nanoseconds(0);
  auto runtime = MakeRuntime(options);
  std::atomic<bool> go{false};
  std::atomic<bool> came_in{false};
  StartOrFail(*runtime, "late", [&] {
    Await([&] { return go.load(); });
    ManagedScope managed;  // parks for good
    came_in.store(true);
  });
  const ThreadSnapshot threads = runtime->Threads();
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      runtime->Shutdown(Deadline::AtMonotonicNanos(0))));
  const absl::Status refused = runtime->ForkPrepare();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  go.store(true);
  // It has tried when it is Blocked.
  Await([&] {
    return came_in.load() || threads.begin()->state() == ThreadState::kBlocked;
  });
  EXPECT_FALSE(came_in.load());
  EXPECT_TRUE(absl::IsFailedPrecondition(runtime->Fork().status()));
}

// The destructor does not wait for threads that only the parent has, and an
// attached thread can leave by exit().
TEST(PlainForkTest, TheChildMayDestroyAndExit) {
  auto runtime = MakeRuntime();
  const ThreadHandle parked =
      StartOrFail(*runtime, "parked", [] { EXPECT_TRUE(Park().ok()); });
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    runtime.reset();
    _exit(7);
  }
  EXPECT_EQ(ExitCode(child), 7);
  EXPECT_TRUE(parked.Unpark());
  EXPECT_TRUE(parked.Join().ok());
}

}  // namespace
}  // namespace stillpoint
