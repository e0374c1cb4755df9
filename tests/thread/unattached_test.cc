// Every public entry point on a thread that the runtime has never seen
// (incident D10: a crash in place of an error).

#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "tests/base/death.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::MakeRuntime;
using testing::StartOrFail;

// What it says, and that it says the remedy.
#define EXPECT_DIES_UNATTACHED(statement)                                   \
  EXPECT_DIES_SAYING(statement, "this thread is not attached to a runtime", \
                     "Runtime::AttachCurrentThread", "Runtime::Start")

class UnattachedTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using UnattachedDeathTest = UnattachedTest;

TEST_F(UnattachedTest, KnowsThatItIsIncidentD10) {
  EXPECT_EQ(Thread::Current(), nullptr);
  const ThreadHandle self = CurrentThreadHandle();
  EXPECT_FALSE(self.alive());
  EXPECT_FALSE(self.Interrupt());
  EXPECT_FALSE(self.Unpark());
  EXPECT_TRUE(self.Join().ok());
}

TEST_F(UnattachedTest, WaitsThatNeedAThreadAreErrorsIncidentD10) {
  EXPECT_TRUE(absl::IsFailedPrecondition(Park()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Park(Deadline::AtMonotonicNanos(0))));
  const std::unique_ptr<Runtime> runtime = MakeRuntime();
  EXPECT_TRUE(absl::IsFailedPrecondition(runtime->DetachCurrentThread()));
}

TEST_F(UnattachedDeathTest, ScopesAndPollsDieIncidentD10) {
  EXPECT_DIES_UNATTACHED(Poll());
  EXPECT_DIES_UNATTACHED(ManagedScope());
  EXPECT_DIES_UNATTACHED(NativeScope());
  EXPECT_DIES_UNATTACHED(BlockedScope());
  EXPECT_DIES_UNATTACHED(Thread::CurrentOrDie());
}

TEST_F(UnattachedTest, TheRestOfTheRuntimeWorksIncidentD10) {
  const std::unique_ptr<Runtime> runtime = MakeRuntime();
  bool ran = false;
  const ThreadHandle handle =
      StartOrFail(*runtime, "worker", [] { (void)Park(); });
  testing::AwaitState(*runtime, "worker", ThreadState::kBlocked);
  EXPECT_TRUE(runtime
                  ->AtSafepoint("stop",
                                [&](World& world) {
                                  ran = true;
                                  EXPECT_EQ(world.thread_count(), 1u);
                                })
                  .ok());
  EXPECT_TRUE(ran);
  EXPECT_EQ(runtime->ThreadCount(), 1u);
  EXPECT_EQ(runtime->Threads().size(), 1u);
  EXPECT_TRUE(runtime->CreateThreadLocalSlot().ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      handle.Join(Deadline::After(std::chrono::milliseconds(1)))));
  EXPECT_TRUE(handle.Unpark());
  EXPECT_TRUE(handle.Join().ok());
  { NoSafepointScope needs_no_thread; }
  EXPECT_TRUE(runtime->Shutdown(Deadline::Infinite()).ok());
  EXPECT_TRUE(
      absl::IsFailedPrecondition(runtime->AtSafepoint("late", [](World&) {})));
}

}  // namespace
}  // namespace stillpoint
