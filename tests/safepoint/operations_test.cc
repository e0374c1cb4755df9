// Who runs when: the queue of operations, seen from outside.

#include "tests/support/operations.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/event_sink.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/await.h"
#include "tests/support/busy_mutators.h"
#include "tests/support/recording_sink.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::AwaitState;
using testing::BusyMutators;
using testing::RecordingSink;
using testing::StartOrFail;
using testing::StopAndCheck;
using testing::TestOperation;

class OperationsTest : public testing::RuntimeTest {
 protected:
  void SetUp() override {
    Options options = testing::TestOptions(GetParam());
    options.event_sink = &sink_;
    Make(options);
  }

  RecordingSink sink_;
};
STILLPOINT_IN_ALL_CONFIGURATIONS(OperationsTest);

// Incident B1: eight threads that stop the world in tight loops; whoever waits
// for the queue or the list of threads is in a safe state, so all end. Requests
// come from Managed, from Native, and from threads the runtime does not know.
TEST_P(OperationsTest, EightRequestersInTightLoops) {
  constexpr int kRounds = 60;
  int64_t count = 0;  // protected by the safepoint alone
  const auto request = [&] {
    for (int i = 0; i < kRounds; ++i) {
      const bool ok = runtime()
                          .AtSafepoint("count",
                                       [&](World&) {
                                         canary().Check();
                                         ++count;
                                       })
                          .ok();
      EXPECT_TRUE(ok);
    }
  };
  std::vector<ThreadHandle> members;
  std::vector<std::thread> strangers;
  for (int i = 0; i < 3; ++i) {
    members.push_back(StartOrFail(runtime(), "managed", [&] {
      ManagedScope managed;
      for (int i = 0; i < kRounds; ++i) {
        { StopCanary::Work work(canary()); }
        EXPECT_TRUE(runtime()
                        .AtSafepoint("count",
                                     [&](World&) {
                                       canary().Check();
                                       ++count;
                                     })
                        .ok());
        { StopCanary::Work work(canary()); }
      }
    }));
    members.push_back(StartOrFail(runtime(), "native", request));
  }
  for (int i = 0; i < 2; ++i) strangers.emplace_back(request);
  for (const ThreadHandle& member : members) EXPECT_TRUE(member.Join().ok());
  for (std::thread& stranger : strangers) stranger.join();
  EXPECT_EQ(count, 8 * kRounds);
}

// Incident B6: stacks visited twice.
TEST_P(OperationsTest, VisitsEachMutatorExactlyOnce) {
  BusyMutators busy(runtime(), canary(), 5);
  busy.AwaitProgress();
  for (int i = 0; i < 20; ++i) {
    std::vector<std::string> names;
    std::set<uint64_t> ids;
    ASSERT_TRUE(runtime()
                    .AtSafepoint("visit",
                                 [&](World& world) {
                                   canary().Check();
                                   EXPECT_EQ(world.thread_count(), 5u);
                                   world.ForEachThread(
                                       [&](const StoppedThread& thread) {
                                         names.emplace_back(thread.name());
                                         ids.insert(thread.id());
                                       });
                                 })
                    .ok());
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names, (std::vector<std::string>{"busy-0", "busy-1", "busy-2",
                                               "busy-3", "busy-4"}));
    EXPECT_EQ(ids.size(), 5u);
  }
}

// Runs `first` on the VM thread, and while it runs queues the others, each from
// a thread of its own and in this order. Returns when all are done.
void ExecuteWhileFirstRuns(Runtime& runtime,
                           const std::vector<VmOperation*>& others,
                           StopCanary& canary) {
  std::atomic<bool> running{false};
  std::atomic<bool> go_on{false};
  TestOperation first("first", [&](World&) {
    canary.Check();
    running.store(true);
    Await([&] { return go_on.load(); });
  });
  std::vector<ThreadHandle> requesters;
  std::vector<std::atomic<bool>> may_ask(others.size() + 1);
  for (auto& flag : may_ask) flag.store(false);
  // Started before the stop, since nobody can start during it.
  for (size_t i = 0; i < others.size(); ++i) {
    requesters.push_back(
        StartOrFail(runtime, "requester-" + std::to_string(i),
                    [&runtime, &may_ask, operation = others[i], i] {
                      Await([&] { return may_ask[i].load(); });
                      const bool ok = runtime.Execute(*operation).ok();
                      EXPECT_TRUE(ok);
                    }));
  }
  std::thread first_requester([&] {
    const bool ok = runtime.Execute(first).ok();
    EXPECT_TRUE(ok);
  });
  Await([&] { return running.load(); });
  for (size_t i = 0; i < others.size(); ++i) {
    may_ask[i].store(true);
    const std::string name = "requester-" + std::to_string(i);
    // Blocked is stored before the push. So wait until the thread sleeps: the
    // push is over then.
    AwaitState(runtime, name, ThreadState::kBlocked);
    Await([&] {
      for (const PinnedThread& thread : runtime.Threads()) {
        if (thread.name() != name) continue;
        // Nothing but WaitWord's sleeping bit and its own bits are in there.
        return thread.thread().record().wait.Peek() != 0;
      }
      return false;
    });
  }
  go_on.store(true);
  first_requester.join();
  for (const ThreadHandle& requester : requesters) {
    EXPECT_TRUE(requester.Join().ok());
  }
}

// Requests that are queued while a stop is on run in the next one, together.
TEST_P(OperationsTest, RequestsQueuedDuringAStopShareTheNext) {
  std::vector<std::string> order;
  const auto note = [&](std::string_view name) {
    return [&order, &canary = canary(), name](World& world) {
      canary.Check();
      EXPECT_TRUE(world.stopped());
      order.emplace_back(name);
    };
  };
  TestOperation a("a", note("a"));
  TestOperation b("b", note("b"));
  TestOperation c("c", note("c"));
  ExecuteWhileFirstRuns(runtime(), {&a, &b, &c}, canary());
  EXPECT_EQ(order, (std::vector<std::string>{"a", "b", "c"}));
  const std::vector<SafepointRecord> records = sink_.AwaitRecords(2);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_STREQ(records[0].operation, "first");
  EXPECT_EQ(records[0].operations, 1u);
  EXPECT_STREQ(records[1].operation, "a");
  EXPECT_EQ(records[1].operations, 3u);
}

// Finding F11 of the models: an operation that needs no safepoint stands
// between two that do. A batch is the longest prefix that shares a stop, so
// the order of the queue holds, and nobody is told that he is done early.
TEST_P(OperationsTest, BatchIsThePrefixThatSharesAStop) {
  std::vector<std::string> order;
  TestOperation a("a", [&](World& world) {
    EXPECT_TRUE(world.stopped());
    order.push_back("a");
  });
  TestOperation running("running", [&](World& world) {
    EXPECT_FALSE(world.stopped());
    EXPECT_EQ(world.thread_count(), 0u);
    order.push_back("running");
  });
  running.WithoutSafepoint();
  TestOperation b("b", [&](World& world) {
    EXPECT_TRUE(world.stopped());
    order.push_back("b");
  });
  TestOperation c("c", [&](World& world) {
    EXPECT_TRUE(world.stopped());
    order.push_back("c");
  });
  ExecuteWhileFirstRuns(runtime(), {&a, &running, &b, &c}, canary());
  EXPECT_EQ(order, (std::vector<std::string>{"a", "running", "b", "c"}));
  const std::vector<SafepointRecord> records = sink_.AwaitRecords(3);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1].operations, 1u);
  EXPECT_STREQ(records[2].operation, "b");
  EXPECT_EQ(records[2].operations, 2u);
}

// An operation without a safepoint runs beside mutators: it waits for one of
// them to make progress, in Managed.
TEST_P(OperationsTest, OperationWithoutSafepointStopsNobody) {
  BusyMutators busy(runtime(), canary(), 1);
  TestOperation running("running", [&](World& world) {
    EXPECT_FALSE(world.stopped());
    busy.AwaitProgress();
  });
  running.WithoutSafepoint();
  EXPECT_TRUE(runtime().Execute(running).ok());
}

// The requester, a mutator itself, is visited like the others while it waits.
TEST_P(OperationsTest, RequesterIsAMemberOfTheStoppedWorld) {
  const ThreadHandle requester = StartOrFail(runtime(), "requester", [&] {
    ManagedScope managed;
    const uint64_t own_id = Thread::CurrentOrDie().id();
    int visits = 0;
    EXPECT_TRUE(runtime()
                    .AtSafepoint(
                        "self",
                        [&](World& world) {
                          world.ForEachThread([&](const StoppedThread& thread) {
                            if (thread.id() != own_id) return;
                            ++visits;
                            EXPECT_EQ(thread.state(), ThreadState::kBlocked);
                          });
                        })
                    .ok());
    EXPECT_EQ(visits, 1);
  });
  EXPECT_TRUE(requester.Join().ok());
}

// A member of one runtime asks another one to stop its world. The two do not
// know of each other: his own world runs on meanwhile.
TEST_P(OperationsTest, RequestFromAMemberOfAnotherRuntime) {
  std::unique_ptr<Runtime> other = testing::MakeRuntime();
  ASSERT_NE(other, nullptr);
  StopCanary others_canary;
  BusyMutators busy_here(runtime(), canary(), 2);
  BusyMutators busy_there(*other, others_canary, 1);
  const ThreadHandle guest = StartOrFail(*other, "guest", [&] {
    ManagedScope managed;
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(runtime()
                      .AtSafepoint("visit",
                                   [&](World& world) {
                                     canary().Check();
                                     EXPECT_EQ(world.thread_count(), 2u);
                                     busy_there.AwaitProgress();
                                   })
                      .ok());
    }
  });
  EXPECT_TRUE(guest.Join().ok());
  EXPECT_EQ(others_canary.violations(), 0u);
}

}  // namespace
}  // namespace stillpoint
