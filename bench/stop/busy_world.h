// Mutators that poll both for the runtime's stop and for a bare one, so that
// the two can be measured stop by stop on the same threads.

#ifndef STILLPOINT_BENCH_STOP_BUSY_WORLD_H_
#define STILLPOINT_BENCH_STOP_BUSY_WORLD_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/stop/bare_stop.h"
#include "runtime/base/event_sink.h"
#include "runtime/stillpoint.h"

namespace stillpoint::bench {

// What one stop took, in nanoseconds.
struct StopTimes {
  int64_t reach = 0;         // from its begin until all are stopped
  int64_t stopper_free = 0;  // from the end of the operation until the stopper
                             // can go on to the next
  int64_t last_runs = 0;     // from there until the last mutator runs again
};

class BusyWorld {
 public:
  explicit BusyWorld(uint32_t mutators);
  ~BusyWorld();

  StopTimes StopOurs();
  StopTimes StopBare(const ResumePolicy& policy = {});

 private:
  class Recorder : public EventSink {
   public:
    void OnSafepoint(const SafepointRecord& record) override { last = record; }
    SafepointRecord last;
  };

  void Mutate();
  // While stopped: from now on it is counted who runs again.
  void NewRound();
  int64_t AwaitLastRunner();

  const uint32_t mutators_;
  Recorder recorder_;
  BareStop bare_;
  std::unique_ptr<Runtime> runtime_;
  std::atomic<bool> end_{false};
  std::atomic<uint32_t> round_{0};
  std::atomic<uint32_t> running_{0};
  std::atomic<int64_t> last_ran_at_{0};
  std::atomic<uint32_t> complete_{0};  // futex: the round that all run in
  std::vector<ThreadHandle> threads_;
};

}  // namespace stillpoint::bench

#endif  // STILLPOINT_BENCH_STOP_BUSY_WORLD_H_
