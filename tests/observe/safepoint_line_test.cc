// The text of the safepoint log, which people's scripts read.

#include <cstring>

#include "gtest/gtest.h"
#include "runtime/base/event_sink.h"
#include "runtime/observe/safepoint_log.h"

namespace stillpoint {
namespace {

SafepointRecord Record() {
  SafepointRecord record;
  std::strcpy(record.operation, "collect");
  record.operations = 1;
  record.sequence = 7;
  record.begin = 1'000'000;
  record.since_last = 123;
  record.lock_wait = 1;
  record.arming = 2;
  record.reaching = 20;
  record.at_safepoint = 300;
  record.leaving = 4000;
  record.total = 4321;
  record.threads_total = 12;
  record.threads_runnable = 3;
  std::strcpy(record.last_thread, "worker-5");
  record.last_thread_delay = 19;
  return record;
}

TEST(SafepointLineTest, OneOperation) {
  EXPECT_EQ(FormatSafepointLine(Record()),
            "Safepoint \"collect\", Time since last: 123 ns, Waiting for "
            "Threads_lock: 1 ns, Reaching safepoint: 20 ns, At safepoint: 300 "
            "ns, Leaving safepoint: 4000 ns, Total: 4321 ns, Threads: 3 "
            "runnable, 12 total, Last to arrive: \"worker-5\" after 19 ns");
}

TEST(SafepointLineTest, SharedStop) {
  SafepointRecord record = Record();
  record.operations = 3;
  EXPECT_EQ(FormatSafepointLine(record).substr(0, 25),
            "Safepoint \"collect\" (+2),");
}

TEST(SafepointLineTest, NobodyHadToArrive) {
  SafepointRecord record = Record();
  record.threads_runnable = 0;
  record.last_thread[0] = '\0';
  record.last_thread_delay = 0;
  EXPECT_EQ(FormatSafepointLine(record),
            "Safepoint \"collect\", Time since last: 123 ns, Waiting for "
            "Threads_lock: 1 ns, Reaching safepoint: 20 ns, At safepoint: 300 "
            "ns, Leaving safepoint: 4000 ns, Total: 4321 ns, Threads: 0 "
            "runnable, 12 total");
}

}  // namespace
}  // namespace stillpoint
