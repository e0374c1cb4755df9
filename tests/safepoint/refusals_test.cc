// Requests that would hang, and are refused at once instead, in every build.

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/event_sink.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/await.h"
#include "tests/support/operations.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using ::testing::HasSubstr;
using testing::StartOrFail;
using testing::StopAndCheck;
using testing::TestOperation;

constexpr LockRank kRank{"refusals_test_lock", kFirstEmbedderRank,
                         "held where a request is made"};

class RefusalsTest : public testing::RuntimeTest {
 protected:
  // A request that must not be granted; its message.
  std::string RefusedRequest() {
    bool ran = false;
    const absl::Status refused =
        runtime().AtSafepoint("wanted", [&](World&) { ran = true; });
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_FALSE(ran);
    return std::string(refused.message());
  }
};
STILLPOINT_IN_ALL_CONFIGURATIONS(RefusalsTest);

// Incident B3: a request while holding a lock that whoever is waited for may
// need. Native, Managed and unattached callers.
TEST_P(RefusalsTest, WithARankedLockHeld) {
  RankedMutex mutex(kRank);
  const ThreadHandle member = StartOrFail(runtime(), "member", [&] {
    {
      RankedMutexLock lock(mutex);
      EXPECT_THAT(RefusedRequest(), HasSubstr("refusals_test_lock"));
    }
    ManagedScope managed;
    {
      NoSafepointScope no_safepoint;
      // Clang's lock analysis follows an if, not an ASSERT_TRUE.
      if (!mutex.TryLock()) {
        ADD_FAILURE() << "nobody else takes it";
        return;
      }
      EXPECT_THAT(RefusedRequest(), HasSubstr("refusals_test_lock"));
      mutex.Unlock();
    }
    StopAndCheck(runtime(), canary());
  });
  EXPECT_TRUE(member.Join().ok());
  {
    RankedMutexLock lock(mutex);
    EXPECT_THAT(RefusedRequest(), HasSubstr("refusals_test_lock"));
  }
  StopAndCheck(runtime(), canary());
}

// Incidents B8 and B10: from a region that may not stop.
TEST_P(RefusalsTest, InsideANoSafepointScope) {
  const ThreadHandle member = StartOrFail(runtime(), "member", [&] {
    ManagedScope managed;
    {
      NoSafepointScope no_safepoint;
      { NoSafepointScope nested; }
      EXPECT_THAT(RefusedRequest(), HasSubstr("NoSafepointScope"));
    }
    StopAndCheck(runtime(), canary());
  });
  EXPECT_TRUE(member.Join().ok());
  NoSafepointScope no_safepoint;
  EXPECT_THAT(RefusedRequest(), HasSubstr("NoSafepointScope"));
}

TEST_P(RefusalsTest, AfterShutdown) {
  ASSERT_TRUE(runtime().Shutdown(Deadline::Infinite()).ok());
  EXPECT_THAT(RefusedRequest(), HasSubstr("shutdown"));
  EXPECT_TRUE(absl::IsFailedPrecondition(runtime().Start([] {}).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(runtime().AttachCurrentThread()));
  EXPECT_EQ(runtime().ThreadCount(), 0u);
}

// Everything that waits for a thread is refused in an operation, and the
// runtime is none the worse for it. (Design, I4.)
TEST_P(RefusalsTest, WhatAnOperationMayNotDo) {
  std::unique_ptr<Runtime> other = testing::MakeRuntime();
  ASSERT_NE(other, nullptr);
  std::atomic<bool> stop{false};
  const ThreadHandle member = StartOrFail(
      runtime(), "member", [&] { Await([&] { return stop.load(); }); });
  const auto try_all = [&](World&) {
    const auto refused = [](const absl::Status& status) {
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("VM operation"));
    };
    refused(runtime().Start([] { ADD_FAILURE() << "started"; }).status());
    refused(runtime().AttachCurrentThread());
    refused(runtime().DetachCurrentThread());
    refused(member.Join());
    refused(member.Join(Deadline::After(std::chrono::nanoseconds(0))));
    refused(Park());
    refused(runtime().Shutdown(Deadline::Infinite()));
    // The same at another runtime: its threads may wait for this one's.
    refused(other->Start([] { ADD_FAILURE() << "started"; }).status());
    refused(other->AttachCurrentThread());
    refused(other->AtSafepoint("other's", [](World&) { ADD_FAILURE(); }));
    // What never waits is allowed.
    EXPECT_TRUE(member.Unpark());
    EXPECT_TRUE(member.alive());
    EXPECT_EQ(runtime().ThreadCount(), 1u);
    EXPECT_EQ(runtime().Threads().size(), 1u);
  };
  ASSERT_TRUE(runtime().AtSafepoint("tries", try_all).ok());
  TestOperation running("tries, running", try_all);
  running.WithoutSafepoint();
  ASSERT_TRUE(runtime().Execute(running).ok());
  StopAndCheck(runtime(), canary());
  stop.store(true);
  EXPECT_TRUE(member.Join().ok());
}

// A sink that calls back, against the rules, gets an error and no hang.
class CallingSink : public EventSink {
 public:
  void OnSafepoint(const SafepointRecord&) override {
    Runtime* const runtime = runtime_.load();
    if (runtime == nullptr) return;
    runtime_.store(nullptr);
    const absl::Status refused =
        runtime->AtSafepoint("from the sink", [](World&) { ADD_FAILURE(); });
    EXPECT_TRUE(absl::IsFailedPrecondition(refused));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("event sink"));
    EXPECT_TRUE(absl::IsFailedPrecondition(runtime->Start([] {}).status()));
    EXPECT_TRUE(
        absl::IsFailedPrecondition(runtime->Shutdown(Deadline::Infinite())));
    tried_.store(true);
  }

  std::atomic<Runtime*> runtime_{nullptr};
  std::atomic<bool> tried_{false};
};

TEST_P(RefusalsTest, FromTheEventSink) {
  CallingSink sink;
  Options options = testing::TestOptions(GetParam());
  options.event_sink = &sink;
  Make(options);
  sink.runtime_.store(&runtime());
  StopAndCheck(runtime(), canary());
  Await([&] { return sink.tried_.load(); });
  StopAndCheck(runtime(), canary());
  End();
}

// As a collector does that finds no memory: also on an attached thread that
// runs the operation itself, and would be detached by its end.
TEST(OperationDeathTest, ExitFromInsideAnOperation) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const bool attached : {false, true}) {
    EXPECT_EXIT(
        {
          // Not destroyed by exit.
          Runtime& runtime = *testing::MakeRuntime().release();
          if (attached) runtime.AttachCurrentThread("main").IgnoreError();
          runtime.AtSafepoint("exits", [](World&) { exit(3); }).IgnoreError();
        },
        ::testing::ExitedWithCode(3), "");
  }
}

// Whoever runs the operation: an exception that reached the requester's handler
// would leave the world stopped for ever.
TEST(OperationDeathTest, AnExceptionEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const bool nested : {false, true}) {
    EXPECT_DEATH(
        {
          std::unique_ptr<Runtime> runtime = testing::MakeRuntime();
          const auto throws = [](World&) { throw 1; };
          TestOperation outer("outer", [&](World& world) {
            if (!nested) throws(world);
            try {
              runtime->AtSafepoint("inner", throws).IgnoreError();
            } catch (int) {
            }
          });
          outer.AllowingNested();
          try {
            runtime->Execute(outer).IgnoreError();
          } catch (int) {
          }
          _exit(0);
        },
        "");
  }
}

}  // namespace
}  // namespace stillpoint
