// What the closure of a handshake may not do, and where a handshake may not be
// requested: refused at once, in every build.

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/tls_block.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/stillpoint.h"
#include "tests/safepoint/handshake_fixture.h"
#include "tests/support/operations.h"

namespace stillpoint {
namespace {

using ::testing::HasSubstr;
using testing::TestOperation;

constexpr LockRank kRank{"handshake_test_lock", kFirstEmbedderRank,
                         "held where a handshake is requested"};

class HandshakeRefusalsTest : public testing::HandshakeFixture {};
STILLPOINT_IN_ALL_CONFIGURATIONS(HandshakeRefusalsTest);

// Incidents B8 and C3: refused in every build, by a closure that the target
// runs, one that a proxy runs, one's own, and one in an operation.
TEST_P(HandshakeRefusalsTest, WhatAClosureMayNotDo) {
  const ThreadHandle parked = StartParked("parked", true);
  const ThreadHandle polling = StartPolling("polling");
  int tried = 0;
  const auto refused = [](const absl::Status& status) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("inside handshake tries"));
  };
  const auto try_all = [&](Thread&) {
    const auto never = [](auto&) { ADD_FAILURE() << "it ran"; };
    refused(runtime().AtSafepoint("wanted", never));
    refused(runtime().Handshake(parked, "nested", never).status());
    refused(runtime().HandshakeAll("nested", never).status());
    refused(runtime().HandshakeAsync(parked, "nested",
                                     [&](Thread& t) { never(t); }));
    refused(Park());
    refused(parked.Join());
    refused(runtime().Start([] { ADD_FAILURE() << "it ran"; }).status());
    refused(runtime().AttachCurrentThread());
    refused(runtime().DetachCurrentThread());
    refused(runtime().Shutdown(Deadline::Infinite()));
    // What never waits is allowed.
    EXPECT_TRUE(polling.Unpark());
    EXPECT_EQ(runtime().Threads().size(), runtime().ThreadCount());
    ++tried;
  };
  for (const ThreadHandle& target : {parked, polling}) {
    ASSERT_TRUE(runtime().Handshake(target, "tries", try_all).ok());
  }
  AttachScope attached(runtime(), "self");
  ASSERT_TRUE(
      runtime().Handshake(CurrentThreadHandle(), "tries", try_all).ok());
  TestOperation operation("outer", [&](World&) {
    EXPECT_TRUE(runtime().Handshake(parked, "tries", try_all).ok());
  });
  operation.AllowingNested();
  ASSERT_TRUE(runtime().Execute(operation).ok());
  EXPECT_EQ(tried, 4);
  EXPECT_EQ(tls_block.handshake, nullptr);
  EXPECT_EQ(tls_block.no_safepoint_depth, 0u);
  EndParked(parked);
  EndParked(polling);
}

TEST_P(HandshakeRefusalsTest, WhereItIsRefused) {
  const ThreadHandle parked = StartParked("parked", true);
  const auto expect_refused = [&](const char* reason) {
    const absl::Status refused =
        runtime()
            .Handshake(parked, "refused",
                       [](Thread&) { ADD_FAILURE() << "it ran"; })
            .status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(reason));
  };
  RankedMutex mutex(kRank);
  {
    RankedMutexLock lock(mutex);
    expect_refused("handshake_test_lock");
    ASSERT_TRUE(runtime().AtSafepoint("in vain", [](World&) {}).code() ==
                absl::StatusCode::kFailedPrecondition);
  }
  {
    NoSafepointScope no_safepoint;
    expect_refused("NoSafepointScope");
  }
  ASSERT_TRUE(runtime()
                  .AtSafepoint("locks",
                               [&](World&) {
                                 RankedMutexLock lock(mutex);
                                 expect_refused("handshake_test_lock");
                               })
                  .ok());
  EndParked(parked);
  ASSERT_TRUE(runtime().Shutdown(Deadline::Infinite()).ok());
  expect_refused("shutdown");
}

}  // namespace
}  // namespace stillpoint
