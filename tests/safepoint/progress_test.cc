// Nobody starves: mutators between stops, stops among many busy mutators,
// starts and exits against back-to-back stops.

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
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
using testing::BusyMutators;
using testing::StartOrFail;
using testing::StopAndCheck;

class ProgressTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(ProgressTest);

// Finding F19: back-to-back requests from threads that need no processor time
// of the mutators'. Each mutator goes on while they do.
TEST_P(ProgressTest, MutatorsGoOnBetweenBackToBackStops) {
  for (const int64_t micros : {0, 100}) {
    Options options = testing::TestOptions(GetParam());
    options.min_mutator_time = std::chrono::microseconds(micros);
    Make(options);
    BusyMutators busy(runtime(), canary(), 2);
    std::atomic<bool> stop{false};
    std::vector<std::thread> stoppers;
    for (int i = 0; i < 2; ++i) {
      stoppers.emplace_back([&] {
        while (!stop.load()) StopAndCheck(runtime(), canary());
      });
    }
    for (int i = 0; i < 20; ++i) busy.AwaitProgress();
    // Starts and exits as well.
    for (int i = 0; i < 5; ++i) {
      const ThreadHandle child = StartOrFail(runtime(), "child", [&] {
        ManagedScope managed;
        StopCanary::Work work(canary());
      });
      EXPECT_TRUE(child.Join().ok());
    }
    stop.store(true);
    for (std::thread& stopper : stoppers) stopper.join();
  }
}

// Incidents A10 and C7: 64 busy mutators on one processor. Stops end, and none
// of the threads is starved for good.
TEST_P(ProgressTest, StopsEndWithManyMutatorsOnOneProcessor) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  // Inherited by the VM thread and the mutators, which are made here.
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  Make(testing::TestOptions(GetParam()));
  {
    BusyMutators busy(runtime(), canary(), 64);
    for (int i = 0; i < 5; ++i) StopAndCheck(runtime(), canary());
    busy.AwaitProgress();
  }
  End();
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace stillpoint
