// The scopes of the calling thread: what each does, and what is misuse.

#include "runtime/thread/scopes.h"

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/base/check.h"
#include "runtime/stillpoint.h"
#include "tests/base/death.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

constexpr LockRank kRank{"Test_lock", kFirstEmbedderRank, "test"};

ThreadState State() { return Thread::CurrentOrDie().state(); }

// Runs `body` on a thread of a runtime of its own.
void OnThread(std::function<void()> body) {
  const std::unique_ptr<Runtime> runtime = testing::MakeRuntime();
  EXPECT_TRUE(
      testing::StartOrFail(*runtime, "culprit", std::move(body)).Join().ok());
}

TEST(ScopesTest, EachEndsWhereItBegan) {
  OnThread([] {
    EXPECT_EQ(State(), ThreadState::kNative);
    {
      ManagedScope managed;
      EXPECT_EQ(State(), ThreadState::kManaged);
      {
        NativeScope native;
        EXPECT_EQ(State(), ThreadState::kNative);
        {
          ManagedScope callback;
          EXPECT_EQ(State(), ThreadState::kManaged);
          BlockedScope blocked;
          EXPECT_EQ(State(), ThreadState::kBlocked);
        }
        EXPECT_EQ(State(), ThreadState::kNative);
      }
      EXPECT_EQ(State(), ThreadState::kManaged);
    }
    EXPECT_EQ(State(), ThreadState::kNative);
  });
}

TEST(ScopesTest, AManagedScopeInManagedDoesNothing) {
  OnThread([] {
    ManagedScope outer;
    {
      ManagedScope inner;
      EXPECT_EQ(State(), ThreadState::kManaged);
    }
    EXPECT_EQ(State(), ThreadState::kManaged);
    Poll();
  });
}

TEST(ScopesTest, AWaitScopeComesBackToEveryState) {
  { WaitScope unattached(nullptr); }
  OnThread([] {
    Thread* const self = Thread::Current();
    {
      WaitScope waiting(self);
      EXPECT_EQ(State(), ThreadState::kBlocked);
      WaitScope again(self);
      EXPECT_EQ(State(), ThreadState::kBlocked);
    }
    EXPECT_EQ(State(), ThreadState::kNative);
    ManagedScope managed;
    {
      WaitScope waiting(self);
      EXPECT_EQ(State(), ThreadState::kBlocked);
    }
    EXPECT_EQ(State(), ThreadState::kManaged);
  });
}

TEST(ScopesTest, LeavingManagedPublishesTheStackPointer) {
  const std::unique_ptr<Runtime> runtime = testing::MakeRuntime();
  const auto look = [&](const std::function<void(const StoppedThread&)>& f) {
    EXPECT_TRUE(
        runtime
            ->AtSafepoint("look", [&](World& world) { world.ForEachThread(f); })
            .ok());
  };
  EXPECT_TRUE(testing::StartOrFail(
                  *runtime, "",
                  [&] {
                    look([](const StoppedThread& thread) {
                      // It has never been in Managed: there is nothing to scan.
                      EXPECT_EQ(thread.scan_begin(), 0u);
                      EXPECT_TRUE(thread.registers().empty());
                    });
                    ManagedScope managed;
                    look([](const StoppedThread& thread) {
                      EXPECT_GT(thread.scan_begin(), thread.stack().low);
                      EXPECT_LT(thread.stack_pointer(), thread.stack().high);
                      EXPECT_LE(thread.scan_begin(), thread.stack_pointer());
                      EXPECT_FALSE(thread.registers().empty());
                    });
                  })
                  .Join()
                  .ok());
}

TEST(ScopesTest, NoSafepointScopesNestAndEnd) {
  OnThread([] {
    ManagedScope managed;
    {
      NoSafepointScope outer;
      { NoSafepointScope inner; }
      EXPECT_TRUE(absl::IsFailedPrecondition(Park()));  // still inside
    }
    Poll();
    EXPECT_TRUE(absl::IsDeadlineExceeded(Park(Deadline::AtMonotonicNanos(0))));
  });
}

// A lock taken by try, for a region in which the thread cannot stop.
TEST(ScopesTest, ALockMayBeTriedInManaged) {
  OnThread([]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    RankedMutex mutex(kRank);
    ManagedScope managed;
    {
      NoSafepointScope no_safepoint;
      ASSERT_TRUE(mutex.TryLock());
      mutex.Unlock();
    }
    Poll();
  });
}

// Checked in every build.
class ScopesDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ScopesDeathTest, ALockHeldIntoManaged) {
  EXPECT_DIES_SAYING(OnThread([] {
                       RankedMutex mutex(kRank);
                       RankedMutexLock lock(mutex);
                       ManagedScope managed;
                     }),
                     "lock Test_lock is held across a transition");
}

TEST_F(ScopesDeathTest, ALockHeldOutOfManaged) {
  EXPECT_DIES_SAYING(OnThread([]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
                       RankedMutex mutex(kRank);
                       ManagedScope managed;
                       if (mutex.TryLock()) BlockedScope blocked;
                     }),
                     "lock Test_lock is held across a transition");
}

TEST_F(ScopesDeathTest, ALockHeldAtAPollThatStops) {
  // The poll word is armed as a stopper would arm it.
  EXPECT_DIES_SAYING(OnThread([]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
                       RankedMutex mutex(kRank);
                       ManagedScope managed;
                       if (!mutex.TryLock()) return;
                       Thread::CurrentOrDie().poll_word().store(1);
                       Poll();
                     }),
                     "lock Test_lock is held across a transition");
}

TEST_F(ScopesDeathTest, ALockWaitedForInManaged) {
  EXPECT_DIES_SAYING(OnThread([] {
                       RankedMutex mutex(kRank);
                       ManagedScope managed;
                       RankedMutexLock lock(mutex);
                     }),
                     "lock Test_lock is waited for in Managed");
}

// Checked where debug checks are on.
class DebugScopesDeathTest : public ScopesDeathTest {
 protected:
  void SetUp() override {
    if (!kDebugChecks) GTEST_SKIP() << "a build without debug checks";
    ScopesDeathTest::SetUp();
  }
};

TEST_F(DebugScopesDeathTest, ANativeScopeInNative) {
  EXPECT_DIES_SAYING(OnThread([] { NativeScope native; }),
                     "NativeScope needs a thread in Managed", "in Native");
}

TEST_F(DebugScopesDeathTest, ABlockedScopeInNative) {
  EXPECT_DIES_SAYING(OnThread([] { BlockedScope blocked; }),
                     "BlockedScope needs a thread in Managed", "in Native");
}

TEST_F(DebugScopesDeathTest, AManagedScopeInBlocked) {
  EXPECT_DIES_SAYING(OnThread([] {
                       ManagedScope managed;
                       BlockedScope blocked;
                       ManagedScope inner;
                     }),
                     "ManagedScope needs a thread in Native", "in Blocked");
}

TEST_F(DebugScopesDeathTest, SafeScopesInsideEachOther) {
  EXPECT_DIES_SAYING(OnThread([] {
                       ManagedScope managed;
                       NativeScope native;
                       BlockedScope blocked;
                     }),
                     "BlockedScope needs a thread in Managed", "in Native");
}

// Incident D12: foreign code that returns in another state than it was called.
TEST_F(DebugScopesDeathTest, ANativeScopeThatEndsInManagedIncidentD12) {
  EXPECT_DIES_SAYING(OnThread([] {
                       ManagedScope managed;
                       NativeScope native;
                       new ManagedScope();  // never closed: on purpose
                     }),
                     "the end of a NativeScope needs a thread in Native",
                     "in Managed");
}

TEST_F(DebugScopesDeathTest, ABlockedScopeThatEndsInNativeIncidentD12) {
  EXPECT_DIES_SAYING(
      OnThread([] {
        ManagedScope managed;
        BlockedScope blocked;
        Thread::CurrentOrDie().state_word().store(ThreadState::kNative);
      }),
      "the end of a BlockedScope needs a thread in Blocked", "in Native");
}

TEST_F(DebugScopesDeathTest, AManagedScopeThatEndsInBlockedIncidentD12) {
  EXPECT_DIES_SAYING(OnThread([] {
                       ManagedScope managed;
                       new BlockedScope();  // never closed: on purpose
                     }),
                     "the end of a ManagedScope needs a thread in Managed",
                     "in Blocked");
}

TEST_F(DebugScopesDeathTest, AScopeForAnotherThread) {
  EXPECT_DIES_SAYING(OnThread([] {
                       Thread other;
                       ManagedScope managed(other);
                     }),
                     "ManagedScope is used with another thread's Thread");
}

TEST_F(DebugScopesDeathTest, APollOutsideManaged) {
  EXPECT_DIES_SAYING(OnThread([] { Poll(); }), "Poll in Native",
                     "open a ManagedScope");
  EXPECT_DIES_SAYING(OnThread([] {
                       ManagedScope managed;
                       BlockedScope blocked;
                       Poll();
                     }),
                     "Poll in Blocked");
}

// Incident B10: whoever may not stop must not reach a place that stops.
TEST_F(DebugScopesDeathTest, APollInANoSafepointScopeIncidentB10) {
  EXPECT_DIES_SAYING(OnThread([] {
                       ManagedScope managed;
                       NoSafepointScope no_safepoint;
                       Poll();
                     }),
                     "Poll inside a NoSafepointScope");
}

TEST_F(DebugScopesDeathTest, TransitionsInANoSafepointScopeIncidentB10) {
  EXPECT_DIES_SAYING(OnThread([] {
                       ManagedScope managed;
                       NoSafepointScope no_safepoint;
                       NativeScope native;
                     }),
                     "NativeScope inside a NoSafepointScope");
  EXPECT_DIES_SAYING(OnThread([] {
                       NoSafepointScope no_safepoint;
                       ManagedScope managed;
                     }),
                     "ManagedScope inside a NoSafepointScope");
}

}  // namespace
}  // namespace stillpoint
