#include "bench/stop/busy_world.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/os/futex.h"
#include "runtime/stillpoint.h"

namespace stillpoint::bench {

BusyWorld::BusyWorld(uint32_t mutators) : mutators_(mutators), bare_(mutators) {
  Options options;
  options.event_sink = &recorder_;
  options.stack_size = size_t{256} << 10;
  options.min_mutator_time = std::chrono::nanoseconds(0);
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create(options);
  STILLPOINT_CHECK(runtime.ok(), "no runtime for the benchmark");
  runtime_ = *std::move(runtime);
  for (uint32_t i = 0; i < mutators_; ++i) {
    absl::StatusOr<ThreadHandle> thread = runtime_->Start([this] { Mutate(); });
    STILLPOINT_CHECK(thread.ok(), "no thread for the benchmark");
    threads_.push_back(*std::move(thread));
  }
  NewRound();
  AwaitLastRunner();
}

BusyWorld::~BusyWorld() {
  end_.store(true);
  for (const ThreadHandle& thread : threads_) (void)thread.Join();
}

void BusyWorld::Mutate() {
  Thread& self = Thread::CurrentOrDie();
  ManagedScope managed(self);
  uint32_t round = 0;
  // relaxed: looked at again at once.
  while (!end_.load(std::memory_order_relaxed)) {
    Poll(self);
    bare_.Poll();
    const uint32_t now = round_.load(std::memory_order_relaxed);
    if (now == round) continue;
    round = now;
    if (running_.fetch_add(1) + 1 == mutators_) {
      last_ran_at_.store(MonotonicNanos());
      complete_.store(now);
      FutexWake(complete_, 1);
    }
  }
}

void BusyWorld::NewRound() {
  running_.store(0);
  round_.fetch_add(1);
}

int64_t BusyWorld::AwaitLastRunner() {
  const uint32_t round = round_.load();
  uint32_t complete;
  while ((complete = complete_.load()) != round) {
    FutexWait(complete_, complete, Deadline::Infinite());
  }
  return last_ran_at_.load();
}

StopTimes BusyWorld::StopOurs() {
  const absl::Status done =
      runtime_->AtSafepoint("bench", [this](World&) { NewRound(); });
  STILLPOINT_CHECK(done.ok(), "a stop of the benchmark failed");
  // Told on this thread, which was the stopper.
  const SafepointRecord& record = recorder_.last;
  const int64_t operation_end =
      record.begin + record.time_to_safepoint() + record.at_safepoint;
  StopTimes times;
  times.reach = record.time_to_safepoint();
  times.stopper_free = record.leaving;
  times.last_runs = AwaitLastRunner() - operation_end;
  return times;
}

StopTimes BusyWorld::StopBare(const ResumePolicy& policy) {
  StopTimes times;
  const int64_t begin = MonotonicNanos();
  bare_.Begin();
  times.reach = MonotonicNanos() - begin;
  NewRound();
  const int64_t operation_end = MonotonicNanos();
  bare_.End(policy);
  times.stopper_free = MonotonicNanos() - operation_end;
  times.last_runs = AwaitLastRunner() - operation_end;
  return times;
}

}  // namespace stillpoint::bench
