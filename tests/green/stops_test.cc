// Stops and handshakes with green threads in every place that one can be in:
// running, ready, parked, new, on its way out. Incidents A3, C1, I8.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "tests/base/sanitizers.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

// AddressSanitizer moves locals off the stack (use-after-return) and fences the
// rest; a collector's embedder has to build its frames as plainly as this.
#define PLAIN_FRAME [[gnu::noinline, gnu::no_sanitize_address]]

namespace stillpoint {
namespace {

using testing::Await;
using testing::AwaitState;
using testing::Rounds;
using testing::StartGreenOrFail;
using testing::StartOrFail;

constexpr uintptr_t kDisguise = ~uintptr_t{0};

// A reference, disguised, that was never in memory before.
uintptr_t NewDisguised() {
  static std::atomic<uintptr_t> count{0};
  return ++count * 0x9e3779b97f4a7c15;
}

[[gnu::noinline, gnu::no_sanitize_address, gnu::no_sanitize_thread]] bool
HasRoot(const StoppedThread& thread, uintptr_t disguised) {
  for (const uintptr_t word : thread.registers()) {
    if ((word ^ kDisguise) == disguised) return true;
  }
  if (thread.scan_begin() == 0) return false;
  const auto* word = reinterpret_cast<const volatile uintptr_t*>(
      thread.scan_begin() & ~(sizeof(uintptr_t) - 1));
  const auto* high =
      reinterpret_cast<const volatile uintptr_t*>(thread.stack().high);
  for (; word < high; ++word) {
    if ((*word ^ kDisguise) == disguised) return true;
  }
  return false;
}

// `inner` runs while the reference exists in one place of the compiler's
// choice: at -O2 a callee-saved register.
PLAIN_FRAME void HoldAcross(uintptr_t disguised,
                            absl::FunctionRef<void()> inner) {
  uintptr_t reference = disguised ^ kDisguise;
  asm volatile("" : "+r"(reference) : : "memory");
  inner();
  asm volatile("" : : "r"(reference) : "memory");
}

class GreenStopsTest : public testing::RuntimeTest {
 protected:
  void MakeWith(size_t carriers) {
    Options options = testing::TestOptions(GetParam());
    options.carriers = carriers;
    options.extra_carriers = 0;
    Make(options);
  }
  void InStop(absl::FunctionRef<void(World&)> look) {
    const absl::Status stopped =
        runtime().AtSafepoint("look", [&](World& world) {
          canary().Check();
          look(world);
        });
    EXPECT_TRUE(stopped.ok()) << stopped;
  }
  // Whether a scan finds the reference in the thread of that name.
  bool Finds(std::string_view name, uintptr_t disguised) {
    bool found = false;
    int visited = 0;
    InStop([&](World& world) {
      world.ForEachThread([&](const StoppedThread& thread) {
        if (thread.name() != name) return;
        ++visited;
        EXPECT_LE(thread.stack().low, thread.scan_begin());
        EXPECT_LT(thread.scan_begin(), thread.stack().high);
        EXPECT_LE(thread.stack().low, thread.stack_pointer());
        EXPECT_LT(thread.stack_pointer(), thread.stack().high);
        found = HasRoot(thread, disguised);
      });
    });
    EXPECT_EQ(visited, 1);
    return found;
  }
};
STILLPOINT_IN_ALL_CONFIGURATIONS(GreenStopsTest);

TEST_P(GreenStopsTest, RootsOfAParkedThreadAreFound) {
  MakeWith(1);
  const uintptr_t disguised = NewDisguised();
  const ThreadHandle holder =
      StartGreenOrFail(runtime(), "holder", [disguised] {
        ManagedScope managed;
        HoldAcross(disguised, [] { EXPECT_TRUE(Park().ok()); });
      });
  const ThreadHandle other = StartGreenOrFail(runtime(), "other", [] {
    ManagedScope managed;
    EXPECT_TRUE(Park().ok());
  });
  AwaitState(runtime(), "holder", ThreadState::kBlocked);
  AwaitState(runtime(), "other", ThreadState::kBlocked);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(Finds("holder", disguised));
    EXPECT_FALSE(Finds("other", disguised));
  }
  EXPECT_TRUE(holder.Unpark());
  EXPECT_TRUE(other.Unpark());
  EXPECT_TRUE(holder.Join().ok());
  EXPECT_TRUE(other.Join().ok());
}

// It has given way, and its carrier runs another one.
TEST_P(GreenStopsTest, RootsOfAReadyThreadAreFound) {
  MakeWith(1);
  const uintptr_t disguised = NewDisguised();
  std::atomic<bool> stop{false};
  std::atomic<bool> yielded{false};
  std::atomic<bool> spins{false};
  const ThreadHandle holder = StartGreenOrFail(runtime(), "holder", [&] {
    ManagedScope managed;
    HoldAcross(disguised, [&] {
      yielded.store(true);
      while (!stop.load()) Yield();
    });
  });
  const ThreadHandle spinner = StartGreenOrFail(runtime(), "spinner", [&] {
    while (!yielded.load()) Yield();
    spins.store(true);
    // In native code, so that its carrier is held up.
    Await([&] { return stop.load(); });
  });
  Await([&] { return spins.load(); });
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Finds("holder", disguised));
  InStop([&](World& world) {
    world.ForEachThread([&](const StoppedThread& thread) {
      EXPECT_EQ(thread.kind(), ThreadKind::kGreen);
      if (thread.name() == "holder") {
        EXPECT_EQ(thread.state(), ThreadState::kBlocked);
        EXPECT_EQ(thread.tid(), 0);
      } else {
        EXPECT_EQ(thread.state(), ThreadState::kNative);
        EXPECT_NE(thread.tid(), 0);
      }
    });
  });
  stop.store(true);
  EXPECT_TRUE(holder.Join().ok());
  EXPECT_TRUE(spinner.Join().ok());
}

// While native and green threads start green ones and those end, each stop sees
// a membership that does not change, and everybody once.
TEST_P(GreenStopsTest, MembershipIsFrozen) {
  MakeWith(2);
  std::atomic<bool> stop{false};
  std::vector<ThreadHandle> starters;
  const auto start_others = [&] {
    while (!stop.load()) {
      std::vector<ThreadHandle> children;
      for (int i = 0; i < 5; ++i) {
        children.push_back(StartGreenOrFail(runtime(), "child", [] {
          ManagedScope managed;
          Yield();
        }));
      }
      for (const ThreadHandle& child : children) EXPECT_TRUE(child.Join().ok());
    }
  };
  starters.push_back(StartOrFail(runtime(), "native", start_others));
  starters.push_back(StartGreenOrFail(runtime(), "green", start_others));
  for (int i = 0; i < Rounds(200); ++i) {
    InStop([&](World& world) {
      const size_t before = world.thread_count();
      std::set<uint64_t> ids;
      for (int again = 0; again < 3; ++again) {
        std::set<uint64_t> now;
        world.ForEachThread([&](const StoppedThread& thread) {
          EXPECT_TRUE(now.insert(thread.id()).second);
          EXPECT_NE(thread.state(), ThreadState::kManaged);
        });
        EXPECT_EQ(now.size(), before);
        if (again > 0) {
          EXPECT_EQ(now, ids);
        }
        ids = now;
      }
      EXPECT_EQ(world.thread_count(), before);
      EXPECT_GE(before, 2u);
    });
  }
  stop.store(true);
  for (const ThreadHandle& thread : starters) EXPECT_TRUE(thread.Join().ok());
}

TEST_P(GreenStopsTest, HandshakesReachThemWhereverTheyAre) {
  MakeWith(1);
  std::atomic<bool> stop{false};
  std::atomic<bool> spins{false};
  const ThreadHandle parked = StartGreenOrFail(runtime(), "parked", [] {
    ManagedScope managed;
    EXPECT_TRUE(Park().ok());
  });
  AwaitState(runtime(), "parked", ThreadState::kBlocked);
  std::atomic<bool> yielded{false};
  const ThreadHandle ready = StartGreenOrFail(runtime(), "ready", [&] {
    ManagedScope managed;
    yielded.store(true);
    while (!stop.load()) Yield();
  });
  const ThreadHandle mounted = StartGreenOrFail(runtime(), "mounted", [&] {
    while (!yielded.load()) Yield();
    Thread& self = Thread::CurrentOrDie();
    ManagedScope managed(self);
    spins.store(true);
    while (!stop.load()) Poll(self);
  });
  Await([&] { return spins.load(); });
  const ThreadHandle fresh = StartGreenOrFail(runtime(), "new", [] {});
  for (int i = 0; i < Rounds(100); ++i) {
    for (const ThreadHandle* target : {&parked, &ready, &mounted}) {
      int runs = 0;
      const absl::StatusOr<HandshakeResult> result =
          runtime().Handshake(*target, "count", [&](Thread& thread) {
            ++runs;
            EXPECT_EQ(&thread, target->slot());
          });
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(*result, HandshakeResult::kDone);
      EXPECT_EQ(runs, 1);
    }
    // Each may run its own closure.
    std::mutex mutex;
    std::map<Thread*, int> runs;
    const absl::StatusOr<size_t> all =
        runtime().HandshakeAll("count all", [&](Thread& thread) {
          const std::lock_guard<std::mutex> lock(mutex);
          ++runs[&thread];
        });
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(*all, runs.size());
    for (const auto& [thread, count] : runs) EXPECT_EQ(count, 1);
    EXPECT_EQ(runs.count(parked.slot()), 1u);
    EXPECT_EQ(runs.count(ready.slot()), 1u);
    EXPECT_EQ(runs.count(mounted.slot()), 1u);
  }
  stop.store(true);
  EXPECT_TRUE(parked.Unpark());
  for (const ThreadHandle* thread : {&parked, &ready, &mounted, &fresh}) {
    EXPECT_TRUE(thread->Join().ok());
    const absl::StatusOr<HandshakeResult> result =
        runtime().Handshake(*thread, "late", [](Thread&) { ADD_FAILURE(); });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(*result, HandshakeResult::kGone);
  }
}

// Requested from a green and from a native thread, of threads that are ending:
// run once, or not at all and said so.
TEST_P(GreenStopsTest, HandshakesWithThreadsThatEnd) {
  MakeWith(2);
  const auto ask = [&] {
    for (int round = 0; round < Rounds(100); ++round) {
      std::vector<ThreadHandle> targets;
      for (int i = 0; i < 8; ++i) {
        targets.push_back(StartGreenOrFail(runtime(), "ends", [i] {
          ManagedScope managed;
          if (i % 2 == 0) Yield();
        }));
      }
      std::atomic<size_t> runs{0};
      const absl::StatusOr<size_t> done = runtime().Handshake(
          targets, "count", [&](Thread&) { runs.fetch_add(1); });
      ASSERT_TRUE(done.ok()) << done.status();
      EXPECT_EQ(*done, runs.load());
      for (const ThreadHandle& thread : targets) {
        EXPECT_TRUE(thread.Join().ok());
      }
    }
  };
  const ThreadHandle green = StartGreenOrFail(runtime(), "green", ask);
  const ThreadHandle native = StartOrFail(runtime(), "native", ask);
  EXPECT_TRUE(green.Join().ok());
  EXPECT_TRUE(native.Join().ok());
}

// A green thread may ask for a stop, and for a handshake with those beside it.
TEST_P(GreenStopsTest, AGreenThreadRequestsThem) {
  MakeWith(1);
  const ThreadHandle parked = StartGreenOrFail(runtime(), "parked", [] {
    ManagedScope managed;
    EXPECT_TRUE(Park().ok());
  });
  const ThreadHandle asks = StartGreenOrFail(runtime(), "asks", [&] {
    for (int i = 0; i < Rounds(100); ++i) {
      InStop([](World& world) {
        // The one that has started them is a member for the length of a call.
        int green = 0;
        world.ForEachThread([&](const StoppedThread& thread) {
          green += thread.kind() == ThreadKind::kGreen;
        });
        EXPECT_EQ(green, 2);
      });
      int runs = 0;
      EXPECT_TRUE(
          runtime().Handshake(parked, "count", [&](Thread&) { ++runs; }).ok());
      EXPECT_EQ(runs, 1);
      const ManagedScope managed;
      EXPECT_TRUE(
          runtime().Handshake(parked, "count", [&](Thread&) { ++runs; }).ok());
      EXPECT_EQ(runs, 2);
    }
    EXPECT_TRUE(parked.Unpark());
  });
  EXPECT_TRUE(asks.Join().ok());
  EXPECT_TRUE(parked.Join().ok());
}

TEST_P(GreenStopsTest, SnapshotsShowThem) {
  MakeWith(2);
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 10; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "parked",
                                       [] { EXPECT_TRUE(Park().ok()); }));
  }
  Await([&] {
    int parked = 0;
    const ThreadSnapshot snapshot = runtime().Threads();
    EXPECT_EQ(snapshot.size(), 10u);
    for (const PinnedThread& thread : snapshot) {
      EXPECT_EQ(thread.name(), "parked");
      if (thread.thread().waiting_for().kind() == WaitKind::kPermit) ++parked;
    }
    return parked == 10;
  });
  EXPECT_EQ(runtime().ThreadCount(), 10u);
  // It keeps the slots, and so the last values, of those that end.
  const ThreadSnapshot snapshot = runtime().Threads();
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Unpark());
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  const ThreadHandle next = StartGreenOrFail(runtime(), "next", [] {});
  EXPECT_TRUE(next.Join().ok());
  for (const PinnedThread& thread : snapshot) {
    EXPECT_EQ(thread.name(), "parked");
    const absl::StatusOr<ThreadCpuTimes> times = thread.GetCpuTimes();
    ASSERT_TRUE(times.ok()) << times.status();
    EXPECT_TRUE(times->is_final);
  }
}

}  // namespace
}  // namespace stillpoint
