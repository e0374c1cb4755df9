// What tests of handshakes have in common: targets that are parked or poll.

#ifndef STILLPOINT_TESTS_SAFEPOINT_HANDSHAKE_FIXTURE_H_
#define STILLPOINT_TESTS_SAFEPOINT_HANDSHAKE_FIXTURE_H_

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/runtime_test.h"

namespace stillpoint::testing {

class HandshakeFixture : public RuntimeTest {
 protected:
  // Parked until End of the test interrupts it, in Managed or Native outside.
  ThreadHandle StartParked(std::string_view name, bool managed) {
    ThreadHandle handle = StartOrFail(runtime(), name, [managed] {
      std::optional<ManagedScope> scope;
      if (managed) scope.emplace();
      EXPECT_TRUE(IsInterrupted(Park()));
    });
    AwaitState(runtime(), name, ThreadState::kBlocked);
    return handle;
  }

  static void EndParked(const ThreadHandle& parked) {
    EXPECT_TRUE(parked.Interrupt());
    EXPECT_TRUE(parked.Join().ok());
  }

  ThreadHandle StartPolling(std::string_view name) {
    ThreadHandle handle = StartOrFail(runtime(), name, [this] {
      ManagedScope managed;
      Thread& self = Thread::CurrentOrDie();
      while (!self.interrupted()) {
        { StopCanary::Work work(canary()); }
        Poll(self);
      }
    });
    AwaitState(runtime(), name, ThreadState::kManaged);
    return handle;
  }

  void ExpectDone(const ThreadHandle& target) {
    int ran = 0;
    const absl::StatusOr<HandshakeResult> result =
        runtime().Handshake(target, "expected", [&](Thread& thread) {
          EXPECT_EQ(&thread, target.slot());
          ++ran;
        });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*result, HandshakeResult::kDone);
    EXPECT_EQ(ran, 1);
  }
};

}  // namespace stillpoint::testing

#endif  // STILLPOINT_TESTS_SAFEPOINT_HANDSHAKE_FIXTURE_H_
