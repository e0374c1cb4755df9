// Looking at all threads while they come and go.

#include "runtime/thread/thread_snapshot.h"

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "tests/base/sanitizers.h"
#include "tests/os/thread_watch.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::AwaitState;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::Rounds;
using testing::StartOrFail;
using ::testing::UnorderedElementsAre;

std::vector<std::string> NamesOf(const ThreadSnapshot& snapshot) {
  std::vector<std::string> names;
  for (const PinnedThread& thread : snapshot) {
    names.emplace_back(thread.name());
  }
  return names;
}

class ThreadSnapshotTest : public testing::RuntimeTest {
 protected:
  ThreadHandle StartParked(const std::string& name) {
    const ThreadHandle handle =
        StartOrFail(runtime(), name, [] { EXPECT_TRUE(Park().ok()); });
    AwaitState(runtime(), name, ThreadState::kBlocked);
    return handle;
  }
  void EndParked(const ThreadHandle& handle) {
    const pid_t tid = handle.slot()->tid();
    EXPECT_TRUE(handle.Unpark());
    EXPECT_TRUE(handle.Join().ok());
    // Joiners go on a little before the slot is free.
    testing::AwaitGone(tid);
  }
};
STILLPOINT_IN_ALL_CONFIGURATIONS(ThreadSnapshotTest);

TEST_P(ThreadSnapshotTest, OfAQuietRuntimeIsExact) {
  {
    const ThreadSnapshot empty = runtime().Threads();
    EXPECT_EQ(empty.size(), 0u);
    EXPECT_TRUE(empty.consistent());
    EXPECT_EQ(empty.begin(), empty.end());
  }
  const ThreadHandle a = StartParked("a");
  const ThreadHandle b = StartParked("b");
  {
    const ThreadSnapshot two = runtime().Threads();
    EXPECT_TRUE(two.consistent());
    EXPECT_EQ(two.size(), 2u);
    EXPECT_THAT(NamesOf(two), UnorderedElementsAre("a", "b"));
    for (const PinnedThread& thread : two) {
      EXPECT_EQ(thread.state(), ThreadState::kBlocked);
      EXPECT_NE(thread.tid(), 0);
      EXPECT_NE(thread.id(), 0u);
      EXPECT_EQ(two.HandleOf(thread), thread.name() == "a" ? a : b);
    }
  }
  EndParked(a);
  EXPECT_THAT(NamesOf(runtime().Threads()), ElementsAre("b"));
  EndParked(b);
  EXPECT_THAT(NamesOf(runtime().Threads()), IsEmpty());
}

TEST_P(ThreadSnapshotTest, AThreadThatEndsMeanwhileStaysReadable) {
  const ThreadHandle target = StartParked("short-lived");
  ThreadHandle again;
  {
    const ThreadSnapshot snapshot = runtime().Threads();
    ASSERT_EQ(snapshot.size(), 1u);
    const PinnedThread& pinned = *snapshot.begin();
    const uint64_t id = pinned.id();
    EndParked(target);  // an exit does not wait for pins
    // Nobody else gets the slot.
    const ThreadHandle next = StartParked("next");
    EXPECT_NE(next.slot(), target.slot());
    EXPECT_EQ(pinned.name(), "short-lived");
    EXPECT_EQ(pinned.id(), id);
    EXPECT_EQ(pinned.state(), ThreadState::kTerminated);
    again = snapshot.HandleOf(pinned);
    EndParked(next);
  }
  EXPECT_EQ(again, target);
  EXPECT_FALSE(again.alive());
}

TEST_P(ThreadSnapshotTest, OutlivesTheRuntime) {
  const ThreadHandle target = StartParked("last");
  const ThreadSnapshot snapshot = runtime().Threads();
  EndParked(target);
  End();
  ASSERT_EQ(snapshot.size(), 1u);
  EXPECT_EQ(snapshot.begin()->name(), "last");
  EXPECT_EQ(snapshot.begin()->state(), ThreadState::kTerminated);
}

TEST_P(ThreadSnapshotTest, MovesItsPins) {
  const ThreadHandle target = StartParked("pinned");
  ThreadSnapshot first = runtime().Threads();
  ThreadSnapshot second = std::move(first);
  EXPECT_THAT(NamesOf(second), ElementsAre("pinned"));
  ThreadSnapshot third = runtime().Threads();
  third = std::move(second);  // gives up its own pin, takes the other
  EXPECT_THAT(NamesOf(third), ElementsAre("pinned"));
  EndParked(target);
  const ThreadHandle held = StartParked("held");
  EXPECT_NE(held.slot(), target.slot());
  EndParked(held);
  // The last pin gone, the slot is free again: one of the next two gets it.
  third = runtime().Threads();
  const ThreadHandle next = StartParked("next");
  const ThreadHandle after = StartParked("after");
  EXPECT_TRUE(next.slot() == target.slot() || after.slot() == target.slot());
  EndParked(next);
  EndParked(after);
}

// Threads start and end flat out. Those that live all the while are in every
// snapshot, nobody is in it twice, and a consistent one shows one instant.
TEST_P(ThreadSnapshotTest, InAStormOfStartsAndExits) {
  std::atomic<bool> stop{false};
  const ThreadHandle fixed[] = {StartParked("fixed-0"), StartParked("fixed-1")};

  // A chain: each link is started before the one in front of it ends, and that
  // has ended before the next is started. So one or two of them live at any
  // instant, and if it is two, they are neighbours.
  std::atomic<int> ended{-1};
  const auto start_link = [&](int number) {
    return StartOrFail(
        runtime(), "link-" + std::to_string(number),
        [&ended, number] { Await([&] { return ended.load() >= number; }); });
  };
  ThreadHandle first_link = start_link(0);
  const ThreadHandle smith = StartOrFail(runtime(), "smith", [&] {
    ThreadHandle link = first_link;
    int number = 0;
    while (!stop.load()) {
      ThreadHandle next = start_link(number + 1);
      ended.store(number);
      ASSERT_TRUE(link.Join().ok());
      link = next;
      ++number;
    }
    ended.store(number);
    ASSERT_TRUE(link.Join().ok());
  });
  const ThreadHandle storm = StartOrFail(runtime(), "storm", [&] {
    while (!stop.load()) {
      ASSERT_TRUE(StartOrFail(runtime(), "drop", [] {}).Join().ok());
    }
  });

  int consistent = 0;
  while (ended.load() < Rounds(1000) || consistent < 20) {
    const ThreadSnapshot snapshot = runtime().Threads();
    std::set<const Thread*> slots;
    std::set<uint64_t> ids;
    int lived_through = 0;
    std::vector<int> links;
    for (const PinnedThread& thread : snapshot) {
      EXPECT_TRUE(slots.insert(&thread.thread()).second);
      EXPECT_TRUE(ids.insert(thread.id()).second);
      const std::string name(thread.name());
      if (name.starts_with("fixed-") || name == "smith" || name == "storm") {
        ++lived_through;
      } else if (name.starts_with("link-")) {
        links.push_back(std::stoi(name.substr(5)));
      } else {
        EXPECT_EQ(name, "drop");
      }
    }
    EXPECT_EQ(lived_through, 4);
    if (!snapshot.consistent()) continue;
    ++consistent;
    ASSERT_FALSE(links.empty());
    ASSERT_LE(links.size(), 2u);
    if (links.size() == 2) {
      EXPECT_EQ(std::abs(links[0] - links[1]), 1);
    }
  }
  stop.store(true);
  EXPECT_TRUE(smith.Join().ok());
  EXPECT_TRUE(storm.Join().ok());
  for (const ThreadHandle& handle : fixed) EndParked(handle);
}

}  // namespace
}  // namespace stillpoint
