// What in the closure of a handshake ends the process.

#include <unistd.h>

#include <memory>

#include "gtest/gtest.h"
#include "runtime/base/check.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/stillpoint.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

constexpr LockRank kRank{"handshake_test_lock", kFirstEmbedderRank,
                         "waited for in a closure"};

TEST(HandshakeDeathTest, APollInAClosureThatWouldStop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        std::unique_ptr<Runtime> runtime = testing::MakeRuntime();
        AttachScope attached(*runtime, "main");
        runtime
            ->Handshake(CurrentThreadHandle(), "polls",
                        [](Thread& self) { PollSlow(self); })
            .IgnoreError();
        _exit(0);
      },
      "Poll inside handshake polls");
}

TEST(HandshakeDeathTest, AScopeInAClosure) {
  if (!kDebugChecks) GTEST_SKIP() << "scopes are checked in debug builds";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        std::unique_ptr<Runtime> runtime = testing::MakeRuntime();
        AttachScope attached(*runtime, "main");
        runtime
            ->Handshake(CurrentThreadHandle(), "leaves",
                        [](Thread& self) { NativeScope native(self); })
            .IgnoreError();
        _exit(0);
      },
      "NativeScope inside a NoSafepointScope");
}

TEST(HandshakeDeathTest, ALockWaitedForInAClosure) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        RankedMutex mutex(kRank);
        std::unique_ptr<Runtime> runtime = testing::MakeRuntime();
        AttachScope attached(*runtime, "main");
        runtime
            ->Handshake(CurrentThreadHandle(), "locks",
                        [&](Thread&) { RankedMutexLock lock(mutex); })
            .IgnoreError();
        _exit(0);
      },
      "handshake_test_lock is waited for in Managed");
}

TEST(HandshakeDeathTest, AnExceptionEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        std::unique_ptr<Runtime> runtime = testing::MakeRuntime();
        AttachScope attached(*runtime, "main");
        try {
          runtime
              ->Handshake(CurrentThreadHandle(), "throws",
                          [](Thread&) { throw 1; })
              .IgnoreError();
        } catch (int) {
        }
        _exit(0);
      },
      "");
}

}  // namespace
}  // namespace stillpoint
