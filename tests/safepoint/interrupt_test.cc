// Cancellation, and interrupts that bring a closure along.

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "tests/safepoint/handshake_fixture.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::StartOrFail;

class InterruptTest : public testing::HandshakeFixture {};
STILLPOINT_IN_ALL_CONFIGURATIONS(InterruptTest);

// Every wait, again and again, where an interrupt ends one.
TEST_P(InterruptTest, ACancelledThreadWaitsForNothing) {
  const ThreadHandle other = StartParked("other", false);
  std::atomic<bool> go_on{false};
  const ThreadHandle target = StartOrFail(runtime(), "target", [&] {
    Thread& self = Thread::CurrentOrDie();
    EXPECT_TRUE(IsInterrupted(Park()));  // by an interrupt
    EXPECT_FALSE(self.cancelled());
    EXPECT_FALSE(self.interrupted());
    go_on.store(true);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(IsInterrupted(Park()));
      EXPECT_TRUE(self.cancelled());
      EXPECT_TRUE(self.interrupted());
      EXPECT_TRUE(IsInterrupted(Sleep(std::chrono::hours(1))));
      EXPECT_TRUE(IsInterrupted(SleepPrecise(std::chrono::hours(1))));
      EXPECT_TRUE(IsInterrupted(other.Join()));
      EXPECT_TRUE(self.ConsumeInterrupt());
      ManagedScope managed;
      EXPECT_TRUE(IsInterrupted(Park()));
    }
  });
  EXPECT_TRUE(target.Interrupt());
  Await([&] { return go_on.load(); });
  EXPECT_TRUE(target.Cancel());
  EXPECT_TRUE(target.Join().ok());
  EXPECT_FALSE(target.Cancel());
  // The slot's next thread is not cancelled.
  const ThreadHandle next = StartParked("next", true);
  EXPECT_TRUE(next.alive());
  EndParked(next);
  EndParked(other);
}

TEST_P(InterruptTest, TheClosureRunsInTheTargetBeforeManagedCode) {
  std::atomic<int> done{0};
  const auto count_done = [&](HandshakeResult result) {
    if (result == HandshakeResult::kDone) done.fetch_add(1);
  };
  // The target's own: nobody else touches it.
  int brought = 0;
  const ThreadHandle target = StartOrFail(runtime(), "target", [&] {
    ManagedScope managed;
    Thread& self = Thread::CurrentOrDie();
    // Ended by the interrupt, with what it brought on the way back.
    EXPECT_TRUE(IsInterrupted(Park()));
    EXPECT_EQ(brought, 1);
    while (brought < 2) Poll(self);
    // The flag is set after the closure was asked for.
    while (!self.ConsumeInterrupt()) {
    }
    NativeScope native;
    EXPECT_TRUE(IsInterrupted(Park()));
    EXPECT_EQ(brought, 2);  // not yet: it has not been to Managed
  });
  testing::AwaitState(runtime(), "target", ThreadState::kBlocked);
  const auto bring = [&](Thread& thread) {
    EXPECT_EQ(&thread, Thread::Current());
    EXPECT_EQ(&thread, target.slot());
    ++brought;
  };
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(
        runtime().InterruptWith(target, "brings", bring, count_done).ok());
    if (i == 3) break;
    ExpectDone(target);  // another's handshake does not run it
    Await([&] { return done.load() == i; });
    if (i == 2) {
      Await([&] { return target.slot()->state() == ThreadState::kBlocked; });
    }
  }
  EXPECT_TRUE(target.Join().ok());
  EXPECT_EQ(done.load(), 3);
  EXPECT_EQ(brought, 3);
}

TEST_P(InterruptTest, OfOneThatIsGoneOrNeverComesBack) {
  std::atomic<int> gone{0};
  const auto held = std::make_shared<int>(0);
  const auto ask = [&](const ThreadHandle& target) {
    return runtime().InterruptWith(
        target, "never", [held](Thread&) { ADD_FAILURE() << "it ran"; },
        [&](HandshakeResult result) {
          gone.fetch_add(result == HandshakeResult::kGone);
        });
  };
  const ThreadHandle parked = StartParked("parked", false);
  ASSERT_TRUE(ask(parked).ok());  // ends it
  EXPECT_TRUE(parked.Join().ok());
  EXPECT_EQ(gone.load(), 1);
  ASSERT_TRUE(ask(parked).ok());
  EXPECT_EQ(gone.load(), 2);
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(
      runtime().InterruptWith(parked, "null", nullptr)));
  std::unique_ptr<Runtime> other = testing::MakeRuntime();
  ASSERT_NE(other, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(
      other->InterruptWith(parked, "foreign", [](Thread&) {})));
  AttachScope attached(runtime(), "self");
  ASSERT_TRUE(runtime()
                  .Handshake(CurrentThreadHandle(), "inside",
                             [&](Thread&) {
                               EXPECT_TRUE(
                                   absl::IsFailedPrecondition(ask(parked)));
                             })
                  .ok());
}

}  // namespace
}  // namespace stillpoint
