// The scheduler of one runtime's green threads: its carriers, and what they
// share.

#ifndef STILLPOINT_RUNTIME_GREEN_SCHEDULER_H_
#define STILLPOINT_RUNTIME_GREEN_SCHEDULER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/base/event_sink.h"
#include "runtime/green/carrier.h"
#include "runtime/green/helper_pool.h"
#include "runtime/green/monitor.h"
#include "runtime/green/ready_queues.h"
#include "runtime/green/stack_pool.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/start.h"
#include "runtime/thread/thread_handle.h"

namespace stillpoint {

struct SchedulerOptions {
  uint32_t carriers = 0;        // 0: UsableProcessors()
  uint32_t extra_carriers = 0;  // at most so many more, see native_handoff
  bool pin = false;             // each to one processor
  bool migrate = false;         // started threads change carriers
  size_t stack_size = 0;        // of green threads; 0: kDefaultStackSize
  std::chrono::nanoseconds time_slice = std::chrono::milliseconds(10);
  std::chrono::nanoseconds native_handoff = std::chrono::milliseconds(1);
  std::string name = {};  // carriers are "<name>-carrier-<n>"
  EventSink* sink = nullptr;
};

// Shared by the Runtime, its carriers and its monitor, and kept by the
// registry: whoever has made the last green thread ready may still look at its
// carrier when the Runtime has ended, and has a share of the registry.
class Scheduler : public std::enable_shared_from_this<Scheduler> {
 public:
  static constexpr uint32_t kMaxCarriers = 256;

  // Starts no thread: carriers come with the first green thread.
  // `registry` keeps it (Registry::KeepToTheEnd), not the other way round.
  Scheduler(Registry& registry, SchedulerOptions options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // See Runtime::Start, for ThreadKind::kGreen.
  absl::StatusOr<ThreadHandle> Start(ThreadOptions options,
                                     absl::AnyInvocable<void()> body);

  // Ends the carriers, once no green thread is left, and waits for that; false
  // at the deadline. Safe states only; no Start succeeds any more.
  bool Stop(Deadline deadline);

  // In the child of a fork: there are no carriers.
  void BecomeForkedChild();

  // Carriers that were started.
  uint32_t carrier_count() const {
    // acquire (M87): pairs with StartCarrier; the carriers are there.
    return carrier_count_.load(std::memory_order_acquire);
  }
  Carrier* carrier(uint32_t index) const {
    // acquire (M87): as above.
    return carriers_[index].load(std::memory_order_acquire);
  }

  // CPU time of all carriers that was no green thread's. See
  // Carrier::own_cpu_nanos.
  int64_t OwnCpuNanos() const;
  // CPU time of all carriers, by the kernel's clocks.
  int64_t CarrierCpuNanos() const;

  const SchedulerOptions& options() const { return options_; }
  Registry& registry() const { return registry_; }

  // --- For carriers and the monitor. ---

  StackPool& stack_pool() { return stack_pool_; }
  HelperPool& helpers() { return *helpers_; }
  GlobalQueue& global() { return global_; }
  bool migrates() const { return options_.migrate; }
  // seq_cst (M84) against Stop.
  bool ending() const { return ending_.load(); }

  // There is something that any carrier may take: wakes one, if none is awake
  // to find it.
  void WakeOne() {
    // seq_cst (M84): the work was left before.
    if (idle_.load() == 0 || spinning_.load() != 0) return;
    WakeOneSlow();
  }
  // By a carrier that was idle and has found something: whoever left more, and
  // saw it awake, has woken nobody for that. seq_cst (M84): it said before that
  // it is busy.
  void WakeAnother() {
    if (HasSharedWorkInOrder()) WakeOne();
  }
  void NoteIdle(int change) { idle_.fetch_add(static_cast<uint32_t>(change)); }
  // Something that any carrier may take: a hint, and the look of a carrier that
  // has said before that it sleeps, or looks no more.
  bool HasSharedWork() const;
  bool HasSharedWorkInOrder() const;

  // Whether one more carrier should look around for a moment before it sleeps.
  bool MaySpin();
  void StopSpinning() { spinning_.fetch_sub(1); }

  // Somebody is ready and has to wait: the monitor has to be awake.
  void NoteWaiting() {
    // relaxed (M86): see Monitor.
    if (monitor_.asleep()) [[unlikely]]
      monitor_.Wake();
  }

  // What is shared waits, and so many carriers are stuck: another one is to
  // take it. False if there is none, nor any more to be had.
  bool HandOff(uint32_t stuck);

  Monitor& monitor() { return monitor_; }

 private:
  struct CarrierStart;

  absl::Status EnsureCarriers();
  absl::Status StartCarrier() ABSL_EXCLUSIVE_LOCKS_REQUIRED(start_lock_);
  static void* CarrierMain(void* argument);
  void RunCarrier(Carrier& carrier);
  void WakeOneSlow();
  static void Entry(void* argument);

  Registry& registry_;
  const SchedulerOptions options_;
  const uint32_t wanted_carriers_;
  const int processors_;
  StackPool stack_pool_;
  GlobalQueue global_;

  alignas(kCacheLineSize) std::atomic<uint32_t> idle_{0};
  std::atomic<uint32_t> spinning_{0};
  std::atomic<bool> ending_{false};
  std::atomic<bool> started_{false};

  RankedMutex start_lock_{kSchedulerLockRank};
  std::atomic<uint32_t> carrier_count_{0};
  std::array<std::atomic<Carrier*>, kMaxCarriers> carriers_ = {};
  // Carriers whose OS thread has not ended. A futex word.
  std::atomic<uint32_t> running_{0};

  const std::shared_ptr<HelperPool> helpers_;
  Monitor monitor_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_SCHEDULER_H_
