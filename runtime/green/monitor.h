// Watches over carriers that have been running the same thread for long, while
// others wait for them.

#ifndef STILLPOINT_RUNTIME_GREEN_MONITOR_H_
#define STILLPOINT_RUNTIME_GREEN_MONITOR_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "runtime/base/clock.h"

namespace stillpoint {

class Carrier;
class Scheduler;

// A thread of its own. It wakes up once a tick as long as somebody waits; when
// nobody does it sleeps until somebody may, for good if there are no timers. At
// each tick it asks for the end of time
// slices, hands the work of carriers that are stuck in native code to others,
// and reports those who wait behind such a thread and cannot be handed over.
class Monitor {
 public:
  explicit Monitor(Scheduler& scheduler);
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // Starts the OS thread, which keeps the scheduler and the registry
  // alive.
  absl::Status Start(std::shared_ptr<Scheduler> scheduler);

  // Any thread: from now on somebody waits.
  void Wake();
  // Whether Wake is needed. relaxed (M86): the monitor looks again a tick after
  // it has said so, and a store takes less to be seen.
  bool asleep() const {
    return sleep_.load(std::memory_order_relaxed) == kAsleep;
  }

  // A carrier that has something to run: its earliest timer is due at `nanos`,
  // when it may still be running that.
  void NoteTimer(int64_t nanos) {
    // relaxed (M86): as asleep().
    if (asleep() && nanos < timer_.load(std::memory_order_relaxed)) Wake();
  }

  // Ends the thread; returns when it has ended.
  void Stop();

  // Nanoseconds after which those that wait behind a thread in native code are
  // reported.
  static constexpr int64_t kReportNanos = 1'000'000'000;

 private:
  enum Sleep : uint32_t { kAwake, kAsleep, kEnding };
  struct Share;

  // Of one carrier.
  struct Watch {
    uint64_t switches = 0;
    int64_t since = 0;
    int64_t sliced_at = 0;
    bool reported = false;
  };

  static void* ThreadMain(void* argument);
  void Run();
  void SleepATick();
  void SleepUntilNoted();
  // Whether anybody waits.
  bool Look();
  bool LookAt(Carrier& carrier, Watch& watch, int64_t now);
  void Report(Carrier& carrier, int64_t nanos);

  Scheduler& scheduler_;
  std::array<Watch, 256> watches_;
  uint32_t stuck_ = 0;  // carriers, of those that Look has seen so far
  std::atomic<uint32_t> sleep_{kAwake};
  // While it sleeps: the timer that it has in mind.
  std::atomic<int64_t> timer_{INT64_MAX};
  std::atomic<bool> ending_{false};
  // 1 while the OS thread lives. A futex word.
  std::atomic<uint32_t> running_{0};
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_MONITOR_H_
