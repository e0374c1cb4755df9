// What the record of a stop says.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/event_sink.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/await.h"
#include "tests/support/busy_mutators.h"
#include "tests/support/operations.h"
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

class RecordTest : public testing::RuntimeTest {
 protected:
  void SetUp() override {
    Options options = testing::TestOptions(GetParam());
    options.event_sink = &sink_;
    Make(options);
  }
  // The sink is told of stops until the runtime is gone.
  void TearDown() override { testing::RuntimeTest::TearDown(); }

  RecordingSink sink_;
};
STILLPOINT_IN_ALL_CONFIGURATIONS(RecordTest);

// Incident J6: the phases leave nothing out, the wait for Threads_lock
// included.
TEST_P(RecordTest, PhasesSumToTotal) {
  constexpr size_t kStops = 60;
  {
    BusyMutators busy(runtime(), canary(), 3);
    busy.AwaitProgress();
    for (size_t i = 0; i < kStops; ++i) {
      StopAndCheck(runtime(), canary());
      // Starts, so that there is somebody to wait for Threads_lock with.
      if (i % 4 == 0) StartOrFail(runtime(), "short", [] {});
    }
  }
  const std::vector<SafepointRecord> records = sink_.AwaitRecords(kStops);
  ASSERT_EQ(records.size(), kStops);
  int64_t last_end = 0;
  for (size_t i = 0; i < kStops; ++i) {
    const SafepointRecord& record = records[i];
    EXPECT_EQ(record.sequence, i + 1);
    EXPECT_EQ(record.lock_wait + record.reaching + record.at_safepoint +
                  record.leaving,
              record.total);
    EXPECT_EQ(record.time_to_safepoint(), record.lock_wait + record.reaching);
    EXPECT_GE(record.lock_wait, 0);
    EXPECT_GE(record.arming, 0);
    EXPECT_LE(record.arming, record.reaching);
    EXPECT_GE(record.at_safepoint, 0);
    EXPECT_GE(record.leaving, 0);
    EXPECT_GE(record.queue_wait, 0);
    // Stops and the pauses between them tile the time.
    EXPECT_EQ(record.since_last, i == 0 ? 0 : record.begin - last_end);
    EXPECT_GE(record.begin, last_end);
    last_end = record.begin + record.total;
    EXPECT_STREQ(record.operation, "check");
    EXPECT_EQ(record.operations, 1u);
    EXPECT_EQ(record.nested_operations, 0u);
    EXPECT_LE(record.threads_runnable, record.threads_total);
    EXPECT_EQ(record.last_thread[0] == '\0', record.threads_runnable == 0);
  }
}

TEST_P(RecordTest, CountsRunnableThreadsAndAllThreads) {
  std::atomic<bool> stop{false};
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 3; ++i) {
    threads.push_back(StartOrFail(runtime(), "native",
                                  [&] { Await([&] { return stop.load(); }); }));
  }
  AwaitState(runtime(), "native", ThreadState::kNative);
  StopAndCheck(runtime(), canary());
  EXPECT_EQ(sink_.AwaitRecords(1)[0].threads_total, 3u);
  EXPECT_EQ(sink_.records()[0].threads_runnable, 0u);
  EXPECT_STREQ(sink_.records()[0].last_thread, "");
  EXPECT_EQ(sink_.records()[0].last_thread_delay, 0);

  // Two that are in Managed at the scan for certain: they poll only when the
  // stop has been asked for.
  std::atomic<int> inside{0};
  std::atomic<bool> poll_now{false};
  for (int i = 0; i < 2; ++i) {
    threads.push_back(StartOrFail(runtime(), "managed", [&] {
      ManagedScope managed;
      Thread& self = Thread::CurrentOrDie();
      inside.fetch_add(1);
      // Armed: the scan has counted this thread.
      while (self.poll_word().load() == 0) {
      }
      while (!poll_now.load()) {
      }
      while (!stop.load()) Poll(self);
    }));
  }
  Await([&] { return inside.load() == 2; });
  const ThreadHandle requester = StartOrFail(
      runtime(), "requester", [&] { StopAndCheck(runtime(), canary()); });
  AwaitState(runtime(), "requester", ThreadState::kBlocked);
  poll_now.store(true);
  EXPECT_TRUE(requester.Join().ok());
  const SafepointRecord record = sink_.AwaitRecords(2)[1];
  EXPECT_EQ(record.threads_total, 6u);
  EXPECT_EQ(record.threads_runnable, 2u);
  EXPECT_STREQ(record.last_thread, "managed");
  EXPECT_GE(record.last_thread_delay, 0);
  EXPECT_LE(record.last_thread_delay, record.reaching);
  stop.store(true);
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
}

// Incident J1: which thread? The one that arrived after all others had.
TEST_P(RecordTest, NamesTheLastToArrive) {
  for (const bool by_scope : {false, true}) {
    std::atomic<int> inside{0};
    std::atomic<bool> early_safe{false};
    std::atomic<bool> stop{false};
    const ThreadHandle late = StartOrFail(runtime(), "latecomer", [&] {
      ManagedScope managed;
      inside.fetch_add(1);
      while (!early_safe.load()) {
      }
      if (by_scope) {
        NativeScope native;
        Await([&] { return stop.load(); });
      } else {
        while (!stop.load()) Poll();
      }
    });
    const ThreadHandle early = StartOrFail(runtime(), "early", [&] {
      ManagedScope managed;
      inside.fetch_add(1);
      while (!stop.load()) Poll();
    });
    Await([&] { return inside.load() == 2; });
    const size_t before = sink_.records().size();
    const ThreadHandle requester = StartOrFail(
        runtime(), "requester", [&] { StopAndCheck(runtime(), canary()); });
    AwaitState(runtime(), "early", ThreadState::kBlocked);
    early_safe.store(true);
    EXPECT_TRUE(requester.Join().ok());
    const SafepointRecord record = sink_.AwaitRecords(before + 1)[before];
    EXPECT_STREQ(record.last_thread, "latecomer");
    EXPECT_GT(record.last_thread_delay, 0);
    EXPECT_EQ(record.threads_runnable, 2u);
    stop.store(true);
    EXPECT_TRUE(late.Join().ok());
    EXPECT_TRUE(early.Join().ok());
  }
}

TEST_P(RecordTest, CutsLongNames) {
  const std::string name(3 * SafepointRecord::kNameCapacity, 'n');
  std::atomic<bool> stop{false};
  std::atomic<bool> inside{false};
  const ThreadHandle thread = StartOrFail(runtime(), name, [&] {
    ManagedScope managed;
    inside.store(true);
    while (!stop.load()) Poll();
  });
  Await([&] { return inside.load(); });
  ASSERT_TRUE(runtime().AtSafepoint(name, [](World&) {}).ok());
  stop.store(true);
  EXPECT_TRUE(thread.Join().ok());
  const SafepointRecord record = sink_.AwaitRecords(1)[0];
  const std::string cut = name.substr(0, SafepointRecord::kNameCapacity - 1);
  EXPECT_EQ(record.operation, cut);
  if (record.threads_runnable == 1) {
    EXPECT_EQ(record.last_thread, cut);
  }
}

// An operation that runs without a stop leaves no record of one.
TEST_P(RecordTest, NoRecordWithoutAStop) {
  testing::TestOperation running("running", [](World&) {});
  running.WithoutSafepoint();
  ASSERT_TRUE(runtime().Execute(running).ok());
  StopAndCheck(runtime(), canary());
  const std::vector<SafepointRecord> records = sink_.AwaitRecords(1);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].sequence, 1u);
  EXPECT_STREQ(records[0].operation, "check");
}

// The VM thread comes for a periodic stop while a requester runs its own, and
// finds a request when it gets the lock: mutators have their time all the same.
TEST_P(RecordTest, MinMutatorTimeHoldsForARequestBesideAPeriodicStop) {
  constexpr auto kMinimum = std::chrono::milliseconds(50);
  Options options = testing::TestOptions(GetParam());
  options.event_sink = &sink_;
  options.min_mutator_time = kMinimum;
  options.safepoint_interval = 2 * kMinimum;
  Make(options);
  sink_.AwaitRecords(1);  // the first periodic one
  std::this_thread::sleep_for(kMinimum + kMinimum / 2);
  std::thread second;
  ASSERT_TRUE(runtime()
                  .AtSafepoint("first",
                               [&](World&) {
                                 // Until the periodic one is due, and the VM
                                 // thread waits for the lock.
                                 std::this_thread::sleep_for(kMinimum);
                                 second = std::thread([&] {
                                   StopAndCheck(runtime(), canary());
                                 });
                                 // Until that one is queued.
                                 std::this_thread::sleep_for(kMinimum / 2);
                               })
                  .ok());
  second.join();
  for (const SafepointRecord& record : sink_.AwaitRecords(3)) {
    if (record.since_last == 0) continue;  // the first
    EXPECT_GE(record.since_last, std::chrono::nanoseconds(kMinimum).count())
        << record.operation;
  }
}

}  // namespace
}  // namespace stillpoint
