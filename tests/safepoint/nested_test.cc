// Incident B7: an operation that asks for another one.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/event_sink.h"
#include "runtime/stillpoint.h"
#include "tests/support/operations.h"
#include "tests/support/recording_sink.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using ::testing::HasSubstr;
using testing::RecordingSink;
using testing::StartOrFail;
using testing::StopAndCheck;
using testing::TestOperation;

class NestedTest : public testing::RuntimeTest {
 protected:
  void SetUp() override {
    Options options = testing::TestOptions(GetParam());
    options.event_sink = &sink_;
    Make(options);
  }

  RecordingSink sink_;
};
STILLPOINT_IN_ALL_CONFIGURATIONS(NestedTest);

TEST_P(NestedTest, AllowedRunsInlineInTheSameStopAndIsCounted) {
  std::vector<std::string> order;
  TestOperation inner("inner", [&](World& world) {
    EXPECT_TRUE(world.stopped());
    canary().Check();
    order.push_back("inner");
  });
  TestOperation without("without", [&](World& world) {
    EXPECT_TRUE(world.stopped());
    order.push_back("without");
  });
  without.WithoutSafepoint();
  TestOperation outer("outer", [&](World&) {
    order.push_back("begin");
    EXPECT_TRUE(runtime().Execute(inner).ok());
    EXPECT_TRUE(runtime().Execute(without).ok());
    order.push_back("end");
  });
  outer.AllowingNested();
  ASSERT_TRUE(runtime().Execute(outer).ok());
  EXPECT_EQ(order,
            (std::vector<std::string>{"begin", "inner", "without", "end"}));
  StopAndCheck(runtime(), canary());
  const std::vector<SafepointRecord> records = sink_.AwaitRecords(2);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_STREQ(records[0].operation, "outer");
  EXPECT_EQ(records[0].operations, 1u);
  EXPECT_EQ(records[0].nested_operations, 2u);
  // The count is the stop's, not the runtime's.
  EXPECT_EQ(records[1].nested_operations, 0u);
}

TEST_P(NestedTest, AllowedInsideAllowed) {
  int depth_reached = 0;
  TestOperation third("third", [&](World&) { depth_reached = 3; });
  TestOperation second(
      "second", [&](World&) { EXPECT_TRUE(runtime().Execute(third).ok()); });
  second.AllowingNested();
  TestOperation first(
      "first", [&](World&) { EXPECT_TRUE(runtime().Execute(second).ok()); });
  first.AllowingNested();
  ASSERT_TRUE(runtime().Execute(first).ok());
  EXPECT_EQ(depth_reached, 3);
  EXPECT_EQ(sink_.AwaitRecords(1)[0].nested_operations, 2u);
}

TEST_P(NestedTest, NotAllowedIsAnErrorThatNamesBoth) {
  bool ran = false;
  std::string message;
  TestOperation inner("the inner one", [&](World&) { ran = true; });
  TestOperation outer("the outer one", [&](World&) {
    const absl::Status refused = runtime().Execute(inner);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused));
    message = std::string(refused.message());
  });
  ASSERT_TRUE(runtime().Execute(outer).ok());
  EXPECT_FALSE(ran);
  EXPECT_THAT(message, HasSubstr("the inner one"));
  EXPECT_THAT(message, HasSubstr("the outer one"));
  EXPECT_EQ(sink_.AwaitRecords(1)[0].nested_operations, 0u);
  // What is refused inside is granted afterwards.
  ASSERT_TRUE(runtime().Execute(inner).ok());
  EXPECT_TRUE(ran);
}

// The permission is that of the operation which runs, not of the outermost.
TEST_P(NestedTest, InnermostDecides) {
  bool ran = false;
  bool refused = false;
  TestOperation third("third", [&](World&) { ran = true; });
  TestOperation second("second", [&](World&) {
    refused = absl::IsFailedPrecondition(runtime().Execute(third));
  });
  TestOperation first("first", [&](World&) {
    EXPECT_TRUE(runtime().Execute(second).ok());
    // Back in the outer one, its own permission counts again.
    EXPECT_FALSE(ran);
    EXPECT_TRUE(runtime().Execute(third).ok());
  });
  first.AllowingNested();
  ASSERT_TRUE(runtime().Execute(first).ok());
  EXPECT_TRUE(refused);
  EXPECT_TRUE(ran);
}

TEST_P(NestedTest, SafepointInsideAnOperationWithoutOneIsAnError) {
  bool ran = false;
  std::string message;
  TestOperation inner("needs a stop", [&](World&) { ran = true; });
  TestOperation outer("has none", [&](World&) {
    const absl::Status refused = runtime().Execute(inner);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused));
    message = std::string(refused.message());
  });
  outer.WithoutSafepoint().AllowingNested();
  ASSERT_TRUE(runtime().Execute(outer).ok());
  EXPECT_FALSE(ran);
  EXPECT_THAT(message, HasSubstr("needs a stop"));
  EXPECT_THAT(message, HasSubstr("has none"));
}

// Without a stop there are no threads to visit, nested or not, and whatever
// was stopped before.
TEST_P(NestedTest, NestedWithoutSafepointSeesNoThreads) {
  const ThreadHandle member = StartOrFail(runtime(), "member", [] {
    const absl::Status interrupted = Park();
    EXPECT_TRUE(IsInterrupted(interrupted));
  });
  StopAndCheck(runtime(), canary());
  bool ran = false;
  TestOperation inner("inner", [&](World& world) {
    ran = true;
    EXPECT_FALSE(world.stopped());
    EXPECT_EQ(world.thread_count(), 0u);
  });
  inner.WithoutSafepoint();
  TestOperation outer("outer", [&](World& world) {
    EXPECT_EQ(world.thread_count(), 0u);
    EXPECT_TRUE(runtime().Execute(inner).ok());
  });
  outer.WithoutSafepoint().AllowingNested();
  ASSERT_TRUE(runtime().Execute(outer).ok());
  EXPECT_TRUE(ran);
  member.Interrupt();
  EXPECT_TRUE(member.Join().ok());
}

}  // namespace
}  // namespace stillpoint
