// Handles against threads that are ending: what is done to a thread that is
// gone happens to nobody else. (Incidents C1, C5.)

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/os/thread_watch.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::AwaitGone;
using testing::AwaitState;
using testing::StartOrFail;
using testing::StopAndCheck;

class HandlesTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(HandlesTest);

// Incident C5: the slot of a thread that has ended is given to another one.
TEST_P(HandlesTest, OldHandleIsNoHandleToTheSlotsNextThread) {
  pid_t tid = 0;
  const ThreadHandle old = StartOrFail(
      runtime(), "old", [&] { tid = Thread::CurrentOrDie().tid(); });
  ASSERT_TRUE(old.Join().ok());
  AwaitGone(tid);  // the slot is given up a little after joiners are let go
  const ThreadHandle next = StartOrFail(runtime(), "next", [] {
    // One permit, no interrupt: both come from its own handle only.
    EXPECT_TRUE(Park().ok());
    EXPECT_FALSE(Thread::CurrentOrDie().interrupted());
  });
  EXPECT_EQ(next.slot(), old.slot());
  AwaitState(runtime(), "next", ThreadState::kBlocked);
  EXPECT_FALSE(old == next);
  EXPECT_FALSE(old.alive());
  EXPECT_FALSE(old.Unpark());
  EXPECT_FALSE(old.Interrupt());
  EXPECT_TRUE(old.Join().ok());
  EXPECT_TRUE(next.alive());
  StopAndCheck(runtime(), canary());
  EXPECT_TRUE(next.Unpark());
  EXPECT_TRUE(next.Join().ok());
}

// The same under load. Victims are poked at random while they run, end and are
// gone; bystanders, in the slots of dead victims, must not notice.
TEST_P(HandlesTest, PokesAtEndingThreadsHitNobodyElse) {
  constexpr int kRounds = 60;
  std::mutex mutex;
  std::vector<ThreadHandle> victims;  // guarded by mutex
  std::atomic<bool> done{false};
  std::vector<std::thread> pokers;
  for (int p = 0; p < 2; ++p) {
    pokers.emplace_back([&, p] {
      size_t at = static_cast<size_t>(p);
      while (!done.load()) {
        ThreadHandle victim;
        {
          std::lock_guard<std::mutex> lock(mutex);
          if (victims.empty()) continue;
          victim = victims[at++ % victims.size()];
        }
        victim.Unpark();
        const bool was_alive = victim.alive();
        if (victim.Interrupt()) {
          EXPECT_TRUE(was_alive);
        }
        if (at % 4 == 0) {
          EXPECT_TRUE(victim.Join().ok());
          EXPECT_FALSE(victim.alive());
          EXPECT_FALSE(victim.Interrupt());
        }
      }
    });
  }
  std::thread stopper([&] {
    while (!done.load()) StopAndCheck(runtime(), canary());
  });
  for (int i = 0; i < kRounds; ++i) {
    const ThreadHandle victim = StartOrFail(runtime(), "victim", [this] {
      ManagedScope managed;
      StopCanary::Work work(canary());
    });
    {
      std::lock_guard<std::mutex> lock(mutex);
      victims.push_back(victim);
      if (victims.size() > 16) victims.erase(victims.begin());
    }
    std::atomic<bool> released{false};
    const ThreadHandle bystander =
        StartOrFail(runtime(), "bystander", [this, &released] {
          ManagedScope managed;
          EXPECT_TRUE(Park().ok());
          EXPECT_TRUE(released.load());
          EXPECT_FALSE(Thread::CurrentOrDie().interrupted());
          StopCanary::Work work(canary());
        });
    sched_yield();
    released.store(true);
    EXPECT_TRUE(bystander.Unpark());
    EXPECT_TRUE(bystander.Join().ok());
  }
  done.store(true);
  for (std::thread& poker : pokers) poker.join();
  stopper.join();
}

// Interrupts from everywhere at whatever a thread waits in: each wait ends by
// its event or by an interrupt, and what is not interruptible is not.
TEST_P(HandlesTest, BombardedByInterrupts) {
  constexpr int kRounds = 100;
  std::atomic<bool> done{false};
  std::atomic<int> interrupted{0};
  ThreadHandle target = StartOrFail(runtime(), "target", [&] {
    ManagedScope managed;
    int stops = 0;
    for (int i = 0; i < kRounds; ++i) {
      const absl::Status parked = Park();
      EXPECT_TRUE(IsInterrupted(parked)) << parked;
      interrupted.fetch_add(1);
      { StopCanary::Work work(canary()); }
      EXPECT_TRUE(runtime()
                      .AtSafepoint("count",
                                   [&](World&) {
                                     canary().Check();
                                     ++stops;
                                   })
                      .ok());
      absl::StatusOr<ThreadHandle> child = runtime().Start([] {});
      ASSERT_TRUE(child.ok()) << child.status();
      while (true) {
        const absl::Status joined = child->Join();
        if (joined.ok()) break;
        EXPECT_TRUE(IsInterrupted(joined)) << joined;
      }
      EXPECT_FALSE(child->alive());
    }
    EXPECT_EQ(stops, kRounds);
  });
  std::vector<std::thread> bombers;
  for (int i = 0; i < 2; ++i) {
    bombers.emplace_back([&] {
      while (!done.load()) target.Interrupt();
    });
  }
  EXPECT_TRUE(target.Join().ok());
  done.store(true);
  for (std::thread& bomber : bombers) bomber.join();
  EXPECT_EQ(interrupted.load(), kRounds);
}

// Snapshots while threads come and go: every entry is a thread that was there,
// whole, and only once; and one that lived throughout is always in it.
TEST_P(HandlesTest, SnapshotsWhileThreadsComeAndGo) {
  std::atomic<bool> done{false};
  const ThreadHandle constant = StartOrFail(
      runtime(), "constant", [&] { Await([&] { return done.load(); }); });
  AwaitState(runtime(), "constant", ThreadState::kNative);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!done.load()) {
        StartOrFail(runtime(), "comes and goes", [this] {
          ManagedScope managed;
          StopCanary::Work work(canary());
        });
        AttachScope attached(runtime(), "guest");
        EXPECT_TRUE(attached.status().ok());
      }
    });
  }
  threads.emplace_back([&] {
    while (!done.load()) StopAndCheck(runtime(), canary());
  });
  for (int i = 0; i < 200; ++i) {
    const ThreadSnapshot snapshot = runtime().Threads();
    std::set<uint64_t> ids;
    bool found = false;
    for (const PinnedThread& thread : snapshot) {
      EXPECT_TRUE(ids.insert(thread.id()).second);
      const std::string name(thread.name());
      EXPECT_TRUE(name == "constant" || name == "comes and goes" ||
                  name == "guest")
          << name;
      EXPECT_NE(thread.state(), ThreadState::kVacant);
      found |= name == "constant";
      const ThreadHandle handle = snapshot.HandleOf(thread);
      if (name == "constant") {
        EXPECT_EQ(handle, constant);
      }
      handle.Unpark();
    }
    EXPECT_TRUE(found);
  }
  done.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(constant.Join().ok());
}

}  // namespace
}  // namespace stillpoint
