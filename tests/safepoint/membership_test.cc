// Membership stands still during a stop: who starts or attaches comes after it,
// who ends or detaches waits for its end. (Incidents A3, D3.)

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/await.h"
#include "tests/support/busy_mutators.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::AwaitState;
using testing::BusyMutators;
using testing::StartOrFail;
using testing::StopAndCheck;

class MembershipTest : public testing::RuntimeTest {
 protected:
  // Names and ids of the stopped world.
  using Members = std::vector<std::pair<uint64_t, std::string>>;
  static Members MembersOf(const World& world) {
    Members members;
    world.ForEachThread([&](const StoppedThread& thread) {
      members.emplace_back(thread.id(), thread.name());
    });
    return members;
  }

  // Threads everywhere get a chance to do the wrong thing.
  static void LetOthersRun() {
    for (int i = 0; i < 20; ++i) sched_yield();
  }
};
STILLPOINT_IN_ALL_CONFIGURATIONS(MembershipTest);

TEST_P(MembershipTest, WhoStartsDuringAStopComesAfterIt) {
  std::atomic<bool> in_stop{false};
  std::atomic<bool> about_to_start{false};
  std::atomic<bool> entered_managed{false};
  const ThreadHandle starter = StartOrFail(runtime(), "starter", [&] {
    Await([&] { return in_stop.load(); });
    about_to_start.store(true);
    const ThreadHandle child = StartOrFail(runtime(), "child", [&] {
      ManagedScope managed;
      StopCanary::Work work(canary());
      entered_managed.store(true);
    });
    EXPECT_TRUE(child.Join().ok());
  });
  ASSERT_TRUE(runtime()
                  .AtSafepoint("hold",
                               [&](World& world) {
                                 const Members before = MembersOf(world);
                                 EXPECT_EQ(before.size(), 1u);
                                 in_stop.store(true);
                                 Await([&] { return about_to_start.load(); });
                                 LetOthersRun();
                                 canary().Check();
                                 EXPECT_FALSE(entered_managed.load());
                                 EXPECT_EQ(MembersOf(world), before);
                               })
                  .ok());
  EXPECT_TRUE(starter.Join().ok());
  EXPECT_TRUE(entered_managed.load());
}

// Incident D3: attaching races with a stop.
TEST_P(MembershipTest, WhoAttachesDuringAStopComesAfterIt) {
  std::atomic<bool> in_stop{false};
  std::atomic<bool> about_to_attach{false};
  std::atomic<bool> attached{false};
  std::thread guest([&] {
    Await([&] { return in_stop.load(); });
    about_to_attach.store(true);
    AttachScope scope(runtime(), "guest");
    EXPECT_TRUE(scope.status().ok());
    attached.store(true);
    ManagedScope managed;
    StopCanary::Work work(canary());
  });
  ASSERT_TRUE(runtime()
                  .AtSafepoint("hold",
                               [&](World& world) {
                                 in_stop.store(true);
                                 Await([&] { return about_to_attach.load(); });
                                 LetOthersRun();
                                 canary().Check();
                                 EXPECT_FALSE(attached.load());
                                 EXPECT_EQ(MembersOf(world).size(), 0u);
                                 EXPECT_EQ(runtime().Threads().size(), 0u);
                               })
                  .ok());
  guest.join();
  EXPECT_TRUE(attached.load());
}

TEST_P(MembershipTest, WhoEndsDuringAStopWaitsForItsEnd) {
  std::atomic<bool> in_stop{false};
  std::atomic<int> ending{0};
  std::atomic<bool> detached{false};
  const ThreadHandle started = StartOrFail(runtime(), "started", [&] {
    Await([&] { return in_stop.load(); });
    ending.fetch_add(1);
  });
  std::thread guest([&] {
    {
      AttachScope scope(runtime(), "guest");
      EXPECT_TRUE(scope.status().ok());
      Await([&] { return in_stop.load(); });
      ending.fetch_add(1);
    }
    detached.store(true);
  });
  AwaitState(runtime(), "started", ThreadState::kNative);
  AwaitState(runtime(), "guest", ThreadState::kNative);
  ASSERT_TRUE(
      runtime()
          .AtSafepoint("hold",
                       [&](World& world) {
                         const Members before = MembersOf(world);
                         EXPECT_EQ(before.size(), 2u);
                         in_stop.store(true);
                         Await([&] { return ending.load() == 2; });
                         LetOthersRun();
                         EXPECT_TRUE(started.alive());
                         EXPECT_FALSE(detached.load());
                         // Still there, in whole: their stacks can be scanned.
                         EXPECT_EQ(MembersOf(world), before);
                         world.ForEachThread([&](const StoppedThread& thread) {
                           EXPECT_NE(thread.state(), ThreadState::kManaged);
                           EXPECT_LT(thread.stack().low, thread.stack().high);
                           EXPECT_NE(thread.tid(), 0);
                         });
                       })
          .ok());
  EXPECT_TRUE(started.Join().ok());
  guest.join();
  EXPECT_TRUE(detached.load());
}

// The same against threads that come and go all the time: whatever a stop shows
// is the same at its begin and at its end, without doubles.
TEST_P(MembershipTest, StandsStillWhileThreadsComeAndGo) {
  std::atomic<bool> done{false};
  std::vector<std::thread> outside;
  for (int i = 0; i < 2; ++i) {
    outside.emplace_back([&] {
      while (!done.load()) {
        StartOrFail(runtime(), "short", [&] {
          ManagedScope managed;
          StopCanary::Work work(canary());
        });
        AttachScope scope(runtime(), "guest");
        EXPECT_TRUE(scope.status().ok());
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(runtime()
                    .AtSafepoint("twice",
                                 [&](World& world) {
                                   const Members first = MembersOf(world);
                                   canary().Check();
                                   sched_yield();
                                   canary().Check();
                                   EXPECT_EQ(MembersOf(world), first);
                                   EXPECT_EQ(world.thread_count(),
                                             first.size());
                                 })
                    .ok());
  }
  done.store(true);
  for (std::thread& thread : outside) thread.join();
}

// What the world tells about its threads.
TEST_P(MembershipTest, ShowsNameStateStackAndLocals) {
  absl::StatusOr<ThreadLocalSlot> slot = runtime().CreateThreadLocalSlot();
  ASSERT_TRUE(slot.ok());
  std::atomic<bool> stop{false};
  std::atomic<int> ready{0};
  int local = 0;
  std::atomic<uintptr_t> frame{0};
  std::atomic<pid_t> tid{0};
  const ThreadHandle native = StartOrFail(runtime(), "native", [&] {
    Thread& self = Thread::CurrentOrDie();
    self.set_local(*slot, &local);
    ManagedScope managed(self);
    NativeScope in_native(self);
    int on_stack = 0;
    frame.store(reinterpret_cast<uintptr_t>(&on_stack));
    tid.store(self.tid());
    ready.fetch_add(1);
    Await([&] { return stop.load(); });
  });
  const ThreadHandle no_frames =
      StartOrFail(runtime(), "no managed frames", [&] {
        { ManagedScope visit; }
        ready.fetch_add(1);
        Await([&] { return stop.load(); });
      });
  BusyMutators busy(runtime(), canary(), 1);
  busy.AwaitProgress();
  Await([&] { return ready.load() == 2; });
  int seen = 0;
  ThreadHandle kept;
  ASSERT_TRUE(
      runtime()
          .AtSafepoint("look",
                       [&](World& world) {
                         world.ForEachThread([&](const StoppedThread& thread) {
                           ++seen;
                           const StackBounds stack = thread.stack();
                           EXPECT_LT(stack.low, stack.high);
                           EXPECT_NE(thread.tid(), 0);
                           if (thread.name() == "native") {
                             EXPECT_EQ(thread.state(), ThreadState::kNative);
                             EXPECT_EQ(thread.local(*slot), &local);
                             EXPECT_EQ(thread.tid(), tid.load());
                             kept = thread.handle();
                           } else {
                             EXPECT_EQ(thread.local(*slot), nullptr);
                           }
                           if (thread.name() == "no managed frames") {
                             EXPECT_EQ(thread.state(), ThreadState::kNative);
                             EXPECT_EQ(thread.scan_begin(), 0u);
                             EXPECT_EQ(thread.stack_pointer(), 0u);
                             EXPECT_TRUE(thread.registers().empty());
                             return;
                           }
                           if (thread.name() == "busy-0") {
                             EXPECT_EQ(thread.state(), ThreadState::kBlocked);
                           }
                           // Inside the stack that the system reports, and that
                           // the thread itself runs on.
                           EXPECT_GT(thread.scan_begin(), stack.low);
                           EXPECT_LE(thread.scan_begin(),
                                     thread.stack_pointer());
                           EXPECT_LT(thread.stack_pointer(), stack.high);
                           EXPECT_FALSE(thread.registers().empty());
                         });
                       })
          .ok());
  EXPECT_EQ(seen, 3);
  // A handle from an operation outlives it.
  EXPECT_EQ(kept, native);
  EXPECT_TRUE(kept.alive());
  stop.store(true);
  EXPECT_TRUE(kept.Join().ok());
  EXPECT_TRUE(no_frames.Join().ok());
  EXPECT_FALSE(kept.alive());
}

}  // namespace
}  // namespace stillpoint
