// A start that fails leaves nothing behind (incident B15: failure paths that
// keep the lock, so that the next start hangs).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "tests/os/seccomp_filter.h"
#include "tests/os/thread_watch.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using ::testing::HasSubstr;
using testing::OsThreadCount;
using testing::RunWithoutThreadCreation;
using testing::StartOrFail;

// The system may show a thread for a little while after its end, before the
// test as well as now; a thread that was left behind would stay.
void AwaitNoMoreOsThreadsThan(int count) {
  testing::Await([&] { return OsThreadCount() <= count; });
}

class StartFailureTest : public testing::RuntimeTest {
 protected:
  // Tries to start a thread with what the test makes impossible.
  void TryStart(size_t stack_size = 0) {
    auto capture = std::make_shared<int>(0);
    const std::weak_ptr<int> watch = capture;
    ThreadOptions options;
    options.stack_size = stack_size;
    absl::StatusOr<ThreadHandle> started = runtime().Start(
        std::move(options), [this, capture = std::move(capture)] {
          (void)capture;
          body_ran_ = true;
        });
    code_ = started.status().code();
    message_ = std::string(started.status().message());
    capture_gone_ = watch.expired();
  }

  // Nothing has happened, and everything still works: a start, a stop, an end.
  void ExpectThatNothingIsLeftBehind() {
    EXPECT_FALSE(body_ran_);
    EXPECT_TRUE(capture_gone_);
    EXPECT_EQ(runtime().ThreadCount(), 0u);
    EXPECT_EQ(runtime().Threads().size(), 0u);
    testing::StopAndCheck(runtime(), canary());
    bool ran = false;
    EXPECT_TRUE(StartOrFail(runtime(), "next",
                            [&] {
                              ManagedScope managed;
                              ran = true;
                            })
                    .Join()
                    .ok());
    EXPECT_TRUE(ran);
    testing::StopAndCheck(runtime(), canary());
  }

  absl::StatusCode code_ = absl::StatusCode::kOk;
  std::string message_;
  bool capture_gone_ = false;
  bool body_ran_ = false;
};
STILLPOINT_IN_ALL_CONFIGURATIONS(StartFailureTest);

TEST_P(StartFailureTest, TheKernelRefusesIncidentB15) {
  const int os_threads = OsThreadCount();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(RunWithoutThreadCreation([&] { TryStart(); }));
    EXPECT_EQ(code_, absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(message_, HasSubstr("cannot create an OS thread"));
    EXPECT_THAT(message_, HasSubstr("ulimit -u"));
    ExpectThatNothingIsLeftBehind();
  }
  AwaitNoMoreOsThreadsThan(os_threads);
}

TEST_P(StartFailureTest, TheKernelRefusesAManagedCallerIncidentB15) {
  ASSERT_TRUE(RunWithoutThreadCreation([&] {
    AttachScope attached(runtime());
    ASSERT_TRUE(attached.status().ok());
    {
      ManagedScope managed;
      TryStart();
      EXPECT_EQ(Thread::CurrentOrDie().state(), ThreadState::kManaged);
      Poll();
    }
    EXPECT_EQ(runtime().ThreadCount(), 1u);
  }));
  EXPECT_EQ(code_, absl::StatusCode::kResourceExhausted);
  ExpectThatNothingIsLeftBehind();
}

TEST_P(StartFailureTest, AbsurdStackSizesIncidentB15) {
  for (const size_t size : {size_t{1}, size_t{1} << 62, SIZE_MAX}) {
    TryStart(size);
    EXPECT_TRUE(code_ == absl::StatusCode::kResourceExhausted ||
                code_ == absl::StatusCode::kInvalidArgument)
        << message_;
    EXPECT_THAT(message_, HasSubstr(std::to_string(size) + " bytes"));
    ExpectThatNothingIsLeftBehind();
  }
}

TEST_P(StartFailureTest, ALongRowOfFailuresUsesNothingUpIncidentB15) {
  // More than a chunk of slots.
  for (int i = 0; i < 600; ++i) TryStart(size_t{1} << 62);
  ExpectThatNothingIsLeftBehind();
  EXPECT_EQ(CurrentThreadHandle(), ThreadHandle());
}

TEST(RuntimeFailureTest, NoVmThreadNoRuntimeIncidentB15) {
  // TSan makes a thread of its own when the first one is created.
  EXPECT_NE(testing::MakeRuntime(), nullptr);
  const int os_threads = OsThreadCount();
  absl::StatusCode code = absl::StatusCode::kOk;
  ASSERT_TRUE(RunWithoutThreadCreation(
      [&] { code = Runtime::Create().status().code(); }));
  EXPECT_EQ(code, absl::StatusCode::kResourceExhausted);
  AwaitNoMoreOsThreadsThan(os_threads);
  EXPECT_NE(testing::MakeRuntime(), nullptr);
}

}  // namespace
}  // namespace stillpoint
