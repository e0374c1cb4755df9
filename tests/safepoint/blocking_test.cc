// Incident B14: a waiter in the slow path of some primitive is not marked safe,
// and every stop waits for it. So for each primitive of ours that waits: park a
// thread in it, and stops go on.

#include <atomic>
#include <chrono>
#include <vector>

#include "gtest/gtest.h"
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
using testing::AwaitState;
using testing::StartOrFail;
using testing::StopAndCheck;
using testing::TestOperation;

constexpr LockRank kRank{"blocking_test_lock", kFirstEmbedderRank,
                         "held while others wait for it"};

// What the waiters wait for, and how to end that.
struct Scene {
  explicit Scene(Runtime& runtime) : runtime(runtime) {}
  Runtime& runtime;
  ThreadHandle waiter;
  ThreadHandle target;  // lives, holding the mutex, until `release`
  std::atomic<bool> release{false};
  RankedMutex mutex{kRank};
};

struct Primitive {
  const char* name;
  // Run by the waiter in Managed; waits.
  void (*wait)(Scene&);
  // Ends the wait.
  void (*end)(Scene&);
};

const Primitive kPrimitives[] = {
    {"Park", [](Scene&) { EXPECT_TRUE(Park().ok()); },
     [](Scene& scene) { scene.waiter.Unpark(); }},
    {"ParkWithDeadline",
     [](Scene&) {
       EXPECT_TRUE(Park(Deadline::After(std::chrono::hours(1))).ok());
     },
     [](Scene& scene) { scene.waiter.Unpark(); }},
    {"ParkEndedByInterrupt", [](Scene&) { EXPECT_TRUE(IsInterrupted(Park())); },
     [](Scene& scene) { scene.waiter.Interrupt(); }},
    {"Sleep",
     [](Scene&) { EXPECT_TRUE(IsInterrupted(Sleep(std::chrono::hours(1)))); },
     [](Scene& scene) { scene.waiter.Interrupt(); }},
    {"SleepPrecise",
     [](Scene&) {
       EXPECT_TRUE(IsInterrupted(SleepPrecise(std::chrono::hours(1))));
     },
     [](Scene& scene) { scene.waiter.Interrupt(); }},
    {"Join", [](Scene& scene) { EXPECT_TRUE(scene.target.Join().ok()); },
     [](Scene& scene) { scene.release.store(true); }},
    {"JoinEndedByInterrupt",
     [](Scene& scene) { EXPECT_TRUE(IsInterrupted(scene.target.Join())); },
     [](Scene& scene) { scene.waiter.Interrupt(); }},
    {"RankedMutexInBlocked",
     [](Scene& scene) {
       BlockedScope blocked;
       RankedMutexLock lock(scene.mutex);
     },
     [](Scene& scene) { scene.release.store(true); }},
};

class BlockingTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(BlockingTest);

TEST_P(BlockingTest, StopsGoOnWhileAThreadWaits) {
  for (const Primitive& primitive : kPrimitives) {
    SCOPED_TRACE(primitive.name);
    Scene scene(runtime());
    std::atomic<bool> held{false};
    // Holds the mutex while it is waited for, and is waited for itself.
    scene.target = StartOrFail(runtime(), "target", [&] {
      RankedMutexLock lock(scene.mutex);
      held.store(true);
      Await([&] { return scene.release.load(); });
    });
    Await([&] { return held.load(); });
    std::atomic<bool> go{false};
    std::atomic<bool> back{false};
    scene.waiter = StartOrFail(runtime(), "waiter", [&] {
      Await([&] { return go.load(); });
      ManagedScope managed;
      primitive.wait(scene);
      StopCanary::Work work(canary());
      back.store(true);
    });
    go.store(true);
    AwaitState(runtime(), "waiter", ThreadState::kBlocked);
    for (int i = 0; i < 10; ++i) StopAndCheck(runtime(), canary());
    EXPECT_FALSE(back.load());
    primitive.end(scene);
    // Before the target ends: a join that was interrupted may find it gone.
    EXPECT_TRUE(scene.waiter.Join().ok());
    scene.release.store(true);
    EXPECT_TRUE(scene.target.Join().ok());
  }
}

// The wait for an operation. The one in front runs without a stop, and asks for
// nothing; the stop behind it does not wait for the waiting requester.
TEST_P(BlockingTest, StopsGoOnWhileThreadsWaitForOperations) {
  std::atomic<bool> running{false};
  std::atomic<bool> go_on{false};
  TestOperation slow("slow", [&](World&) {
    running.store(true);
    Await([&] { return go_on.load(); });
  });
  slow.WithoutSafepoint();
  const ThreadHandle first = StartOrFail(runtime(), "first", [&] {
    ManagedScope managed;
    EXPECT_TRUE(runtime().Execute(slow).ok());
  });
  Await([&] { return running.load(); });
  std::vector<ThreadHandle> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.push_back(StartOrFail(runtime(), "waiter", [&] {
      ManagedScope managed;
      StopAndCheck(runtime(), canary());
    }));
  }
  for (const PinnedThread& thread : runtime().Threads()) {
    Await([&] { return thread.state() == ThreadState::kBlocked; });
  }
  go_on.store(true);
  StopAndCheck(runtime(), canary());
  EXPECT_TRUE(first.Join().ok());
  for (const ThreadHandle& waiter : waiters) EXPECT_TRUE(waiter.Join().ok());
}

// Start and Attach wait for the end of a stop that is on, and that one has seen
// the starter as safe.
TEST_P(BlockingTest, StopsGoOnWhileAThreadWaitsInStart) {
  std::atomic<bool> in_stop{false};
  const ThreadHandle starter = StartOrFail(runtime(), "starter", [&] {
    Await([&] { return in_stop.load(); });
    const ThreadHandle child = StartOrFail(runtime(), "child", [] {});
    EXPECT_TRUE(child.Join().ok());
  });
  ASSERT_TRUE(runtime()
                  .AtSafepoint("hold",
                               [&](World&) {
                                 in_stop.store(true);
                                 AwaitState(runtime(), "starter",
                                            ThreadState::kBlocked);
                               })
                  .ok());
  for (int i = 0; i < 10; ++i) StopAndCheck(runtime(), canary());
  EXPECT_TRUE(starter.Join().ok());
}

}  // namespace
}  // namespace stillpoint
