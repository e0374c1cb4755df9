// Timer slack: who gets which, who gets it back, and what a refusal costs
// (incident H10).

#include "runtime/thread/timer_slack.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/os/timer_slack.h"
#include "runtime/stillpoint.h"
#include "tests/os/seccomp_filter.h"
#include "tests/support/await.h"
#include "tests/support/recording_sink.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using std::chrono::nanoseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RunDenied;
using testing::StartOrFail;

// Nobody's default, so that an inherited value is not taken for one of these.
constexpr nanoseconds kOwn(71'001);
constexpr nanoseconds kOfRuntime(2'003);
constexpr nanoseconds kOfThread(333);

// What the kernel says of the calling thread.
nanoseconds Slack() {
  const std::optional<uint64_t> slack = ReadTimerSlack();
  EXPECT_TRUE(slack.has_value());
  return nanoseconds(slack.value_or(0));
}

// Runs `f` on a thread that knows nothing of runtimes and has kOwn.
void OnForeignThread(const std::function<void()>& f) {
  std::thread([&] {
    ASSERT_TRUE(WriteTimerSlack(kOwn.count()));
    f();
  }).join();
}

class TimerSlackTest : public testing::RuntimeTest {
 protected:
  void MakeWithSlack(std::optional<nanoseconds> slack) {
    Options options = testing::TestOptions(GetParam());
    options.timer_slack = slack;
    Make(options);
  }

  // The slack that a started thread finds when it begins.
  nanoseconds SlackOfStarted(std::optional<nanoseconds> own) {
    ThreadOptions options;
    options.timer_slack = own;
    nanoseconds found{};
    const absl::StatusOr<ThreadHandle> started =
        runtime().Start(std::move(options), [&] { found = Slack(); });
    EXPECT_TRUE(started.ok() && started->Join().ok()) << started.status();
    return found;
  }
};
STILLPOINT_IN_ALL_CONFIGURATIONS(TimerSlackTest);

TEST_P(TimerSlackTest, UnsetLeavesEveryThreadAlone) {
  OnForeignThread([&] {
    MakeWithSlack(std::nullopt);
    EXPECT_EQ(SlackOfStarted(std::nullopt), kOwn);  // as its creator
    AttachScope attached(runtime());
    ASSERT_TRUE(attached.status().ok());
    EXPECT_EQ(Slack(), kOwn);
  });
}

TEST_P(TimerSlackTest, EachThreadSetsTheRuntimesOnItself) {
  OnForeignThread([&] {
    MakeWithSlack(kOfRuntime);
    EXPECT_EQ(SlackOfStarted(std::nullopt), kOfRuntime);
    EXPECT_EQ(SlackOfStarted(kOfThread), kOfThread);
    EXPECT_EQ(Slack(), kOwn);
  });
}

TEST_P(TimerSlackTest, TheVmThreadHasItToo) {
  Options options = testing::TestOptions(GetParam());
  options.requester_may_run = false;
  options.timer_slack = kOfRuntime;
  Make(options);
  nanoseconds found{};
  ASSERT_TRUE(
      runtime().AtSafepoint("look", [&](World&) { found = Slack(); }).ok());
  EXPECT_EQ(found, kOfRuntime);
}

TEST_P(TimerSlackTest, AStartedThreadMayHaveOneOfItsOwnWithoutTheOption) {
  OnForeignThread([&] {
    MakeWithSlack(std::nullopt);
    EXPECT_EQ(SlackOfStarted(kOfThread), kOfThread);
  });
}

TEST_P(TimerSlackTest, DetachGivesItBack) {
  MakeWithSlack(kOfRuntime);
  OnForeignThread([&] {
    for (int i = 0; i < 3; ++i) {
      {
        AttachScope outer(runtime());
        ASSERT_TRUE(outer.status().ok());
        EXPECT_EQ(Slack(), kOfRuntime);
        {
          AttachScope inner(runtime());
          ASSERT_TRUE(inner.status().ok());
        }
        EXPECT_EQ(Slack(), kOfRuntime);
        // Its own is not what it had last.
        EXPECT_TRUE(SetCurrentTimerSlack(kOfThread).ok());
        EXPECT_EQ(Slack(), kOfThread);
      }
      EXPECT_EQ(Slack(), kOwn);
    }
  });
}

TEST_P(TimerSlackTest, DetachGivesBackWhatOnlyTheThreadItselfChanged) {
  MakeWithSlack(std::nullopt);
  OnForeignThread([&] {
    {
      AttachScope attached(runtime());
      ASSERT_TRUE(attached.status().ok());
      EXPECT_TRUE(SetCurrentTimerSlack(kOfThread).ok());
      EXPECT_TRUE(SetCurrentTimerSlack(kOfRuntime).ok());
      EXPECT_EQ(Slack(), kOfRuntime);
    }
    EXPECT_EQ(Slack(), kOwn);
    // What was set while it was not attached is its own.
    EXPECT_TRUE(SetCurrentTimerSlack(kOfThread).ok());
    {
      AttachScope attached(runtime());
      ASSERT_TRUE(attached.status().ok());
      EXPECT_EQ(Slack(), kOfThread);
    }
    EXPECT_EQ(Slack(), kOfThread);
  });
}

// Detached on its way out, by a destructor that runs before this one.
TEST_P(TimerSlackTest, AThreadThatEndsAttachedGetsItBackToo) {
  MakeWithSlack(kOfRuntime);
  nanoseconds found{};
  struct AtEnd {
    ~AtEnd() {
      if (found != nullptr) *found = Slack();
    }
    nanoseconds* found = nullptr;
  };
  OnForeignThread([&] {
    static thread_local AtEnd at_end;
    at_end.found = &found;
    ASSERT_TRUE(runtime().AttachCurrentThread().ok());
    EXPECT_EQ(Slack(), kOfRuntime);
  });
  EXPECT_EQ(found, kOwn);
}

TEST_P(TimerSlackTest, AStartedThreadChangesAndReadsItsOwn) {
  MakeWithSlack(kOfRuntime);
  std::atomic<bool> changed{false};
  const ThreadHandle changing = StartOrFail(runtime(), "changing", [&] {
    ManagedScope managed;  // any state will do
    EXPECT_TRUE(SetCurrentTimerSlack(kOfThread).ok());
    const absl::StatusOr<nanoseconds> read = CurrentTimerSlack();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, kOfThread);
    EXPECT_EQ(Slack(), kOfThread);
    changed.store(true);
  });
  const ThreadHandle other = StartOrFail(runtime(), "other", [&] {
    testing::Await([&] { return changed.load(); });
    EXPECT_EQ(Slack(), kOfRuntime);
    // A nested attach is not the end of anything.
    EXPECT_TRUE(SetCurrentTimerSlack(kOfThread).ok());
    {
      AttachScope nested(runtime());
      ASSERT_TRUE(nested.status().ok());
    }
    EXPECT_EQ(Slack(), kOfThread);
  });
  EXPECT_TRUE(changing.Join().ok());
  EXPECT_TRUE(other.Join().ok());
}

TEST_P(TimerSlackTest, WorksOnAThreadThatIsNotAttached) {
  OnForeignThread([&] {
    EXPECT_TRUE(SetCurrentTimerSlack(kMinTimerSlack).ok());
    EXPECT_EQ(Slack(), kMinTimerSlack);
    EXPECT_TRUE(SetCurrentTimerSlack(kMaxTimerSlack).ok());
    EXPECT_EQ(Slack(), kMaxTimerSlack);
    EXPECT_EQ(CurrentTimerSlack().value(), kMaxTimerSlack);
  });
}

TEST_P(TimerSlackTest, ValuesOutOfRangeAreRefusedWithTheReason) {
  OnForeignThread([&] {
    for (const nanoseconds bad :
         {nanoseconds::min(), nanoseconds(-1), nanoseconds(0),
          kMaxTimerSlack + nanoseconds(1), nanoseconds::max()}) {
      ThreadOptions thread_options;
      thread_options.timer_slack = bad;
      Options options = testing::TestOptions(GetParam());
      options.timer_slack = bad;
      const absl::Status refusals[] = {
          SetCurrentTimerSlack(bad),
          runtime().Start(std::move(thread_options), [] {}).status(),
          Runtime::Create(options).status(),
      };
      for (const absl::Status& refusal : refusals) {
        EXPECT_TRUE(absl::IsInvalidArgument(refusal)) << refusal;
        EXPECT_THAT(std::string(refusal.message()),
                    AllOf(HasSubstr("allowed are"),
                          HasSubstr("0 is the thread's default, not none")));
      }
      EXPECT_EQ(Slack(), kOwn);
    }
  });
  EXPECT_EQ(runtime().ThreadCount(), 0u);
}

// More than the API returns; somebody's prctl may have set it.
TEST_P(TimerSlackTest, AHugeValueIsReadAsTheLargestAndGivenBackAsItWas) {
  MakeWithSlack(kOfRuntime);
  std::thread([&] {
    constexpr uint64_t kHuge = uint64_t{1} << 63;
    ASSERT_TRUE(WriteTimerSlack(kHuge));
    EXPECT_EQ(CurrentTimerSlack().value(), nanoseconds::max());
    {
      AttachScope attached(runtime());
      ASSERT_TRUE(attached.status().ok());
      EXPECT_EQ(Slack(), kOfRuntime);
    }
    EXPECT_EQ(ReadTimerSlack(), std::optional<uint64_t>(kHuge));
  }).join();
}

// Where it may become one: nothing fails, and nothing is reported.
TEST_P(TimerSlackTest, ARealTimeThreadIsLeftAloneIncidentH10) {
  testing::RecordingSink sink;
  Options options = testing::TestOptions(GetParam());
  options.timer_slack = kOfRuntime;
  options.event_sink = &sink;
  Make(options);
  bool became_one = false;
  OnForeignThread([&] {
    sched_param param = {};
    param.sched_priority = 1;
    became_one = sched_setscheduler(0, SCHED_FIFO, &param) == 0;
    if (!became_one) return;
    const nanoseconds before = Slack();
    {
      AttachScope attached(runtime());
      ASSERT_TRUE(attached.status().ok());
      EXPECT_TRUE(SetCurrentTimerSlack(kOfThread).ok());
      EXPECT_TRUE(CurrentTimerSlack().ok());
    }
    EXPECT_EQ(Slack(), before);
    param.sched_priority = 0;
    EXPECT_EQ(sched_setscheduler(0, SCHED_OTHER, &param), 0);
  });
  End();
  for (const std::string& message : sink.messages()) {
    EXPECT_THAT(message, ::testing::Not(HasSubstr("slack")));
  }
  if (!became_one) GTEST_SKIP() << "real-time scheduling is not permitted here";
}

// The filter holds for the VM thread and for started threads as well: all that
// are created from here inherit it.
TEST_P(TimerSlackTest, ARefusalCostsOneLineAndNothingElse) {
  const bool ran = RunDenied({{SYS_prctl, EPERM}}, [&] {
    testing::RecordingSink sink;
    Options options = testing::TestOptions(GetParam());
    options.timer_slack = kOfRuntime;
    options.event_sink = &sink;
    Make(options);
    int bodies = 0;
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(StartOrFail(runtime(), "",
                              [&] {
                                ManagedScope managed;
                                ++bodies;
                              })
                      .Join()
                      .ok());
      AttachScope attached(runtime());
      ASSERT_TRUE(attached.status().ok());
      ManagedScope managed;
      ++bodies;
    }
    EXPECT_EQ(bodies, 6);
    testing::StopAndCheck(runtime(), canary());
    const absl::StatusOr<nanoseconds> read = CurrentTimerSlack();
    EXPECT_TRUE(absl::IsFailedPrecondition(read.status())) << read.status();
    const absl::Status set = SetCurrentTimerSlack(kOfThread);
    EXPECT_TRUE(absl::IsFailedPrecondition(set)) << set;
    EXPECT_THAT(std::string(set.message()), HasSubstr("seccomp"));
    End();
    std::vector<std::string> lines;
    for (const std::string& message : sink.messages()) {
      if (message.find("slack") != std::string::npos) lines.push_back(message);
    }
    EXPECT_THAT(lines, ElementsAre(AllOf(HasSubstr("W prctl(PR_"),
                                         HasSubstr("Operation not permitted"),
                                         HasSubstr("seccomp"))));
  });
  if (!ran) GTEST_SKIP() << "this kernel has no seccomp filters";
}

TEST_P(TimerSlackTest, ARefusalNeedsNoSink) {
  const bool ran = RunDenied({{SYS_prctl, ENOSYS}}, [&] {
    MakeWithSlack(kOfRuntime);
    EXPECT_TRUE(StartOrFail(runtime(), "", [] {}).Join().ok());
  });
  if (!ran) GTEST_SKIP() << "this kernel has no seccomp filters";
}

}  // namespace
}  // namespace stillpoint
