// The members of one runtime: who may be in Managed, who takes part in a stop.

#ifndef STILLPOINT_RUNTIME_THREAD_REGISTRY_H_
#define STILLPOINT_RUNTIME_THREAD_REGISTRY_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/base/event_sink.h"
#include "runtime/os/fast_cpu_clock.h"
#include "runtime/thread/fence.h"
#include "runtime/thread/slot_table.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/suspension.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_local_slot.h"
#include "runtime/thread/threads_lock.h"

namespace stillpoint {

struct RegistryOptions {
  FenceMode fence;
  StartProtocol start_protocol = StartProtocol::kOutside;
  size_t default_stack_size = 0;  // of started threads; 0 = the system's
  std::optional<std::chrono::nanoseconds> timer_slack;  // of its threads
  EventSink* sink = nullptr;                            // null: nobody
  void (*serve_poll)(Thread&) = nullptr;
  FastCpuClockConfig cpu_clock;  // off
};

// What a carrier keeps to itself, so that starting and ending a green thread on
// it shares no cache line with others. One thread at a time, but for the
// counts.
struct CarrierShare {
  // Ids that this carrier may give out.
  uint64_t next_id = 0;
  uint64_t ids_end = 0;

  // Slots that are free.
  static constexpr size_t kMaxSlots = 64;
  std::array<Thread*, kMaxSlots> slots = {};
  size_t slot_count = 0;

  // Of the membership changes that it has made; see Registry::changes_begun.
  // One writer.
  std::atomic<uint64_t> changes_begun{0};
  std::atomic<uint64_t> changes_done{0};
  CarrierShare* next = nullptr;
};

// Shared: by the Runtime, its VM thread, every attached thread and every
// handle. Slots, stop word and poll words thus outlive the Runtime while
// anybody can still look at them.
class Registry : public std::enable_shared_from_this<Registry> {
 public:
  explicit Registry(const RegistryOptions& options);
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  StopControl& control() { return control_; }
  ThreadsLock& threads_lock() { return threads_lock_; }
  // Those of OS threads, which a stop looks at: native ones and carriers.
  const SlotTable& slots() const { return slots_; }
  // Those of green threads, which it reaches through the carriers.
  const SlotTable& green_slots() const { return green_slots_; }
  size_t default_stack_size() const { return default_stack_size_; }
  const FastCpuClockConfig& cpu_clock() const { return cpu_clock_; }

  // --- Membership. In this order for each thread: ---

  // A slot for a new member, filled with what is given; not visible to anybody
  // yet. Errors: FailedPrecondition once closing, ResourceExhausted.
  // A carrier is no member, and is not counted. The name of a green thread that
  // is given none says so.
  struct NewMember {
    std::string_view name;
    ThreadKind kind = ThreadKind::kNative;
    bool foreign = false;
    // A carrier's own, for the green threads that it starts; null elsewhere.
    CarrierShare* share = nullptr;
  };
  absl::StatusOr<Thread*> Admit(const NewMember& member);

  // Makes it a member, in state `first` (New or Native). A stop that is on does
  // not see it; the thread cannot enter Managed before that stop ends.
  void Publish(Thread& thread, ThreadState first);

  // The member has done its last managed work: writes Terminated, and waits for
  // the end of a stop that may count it as a member. Safe states only.
  void Leave(Thread& thread);

  // The same for green threads, whose membership changes while somebody is
  // Managed, so that it does not change in a stop: the caller of PublishGreen,
  // and the leaving thread itself, which is not afterwards. Neither waits.
  // `share` is that of the carrier that it happens on, if it does on one.
  void PublishGreen(Thread& thread, CarrierShare* share);
  void LeaveGreen(Thread& thread, CarrierShare& share);
  // In a safe state, on a runtime that has ended: there is no stop to come.
  void LeaveGreenClosed(Thread& thread, CarrierShare& share);

  // Ends its generation, releases joiners, gives up the slot. Call it with no
  // lock held; the caller may not touch the thread afterwards. The registry may
  // end with it, unless the caller has a share.
  void Retire(Thread& thread);
  // The same on a carrier, which may keep the slot.
  void RetireGreen(Thread& thread, CarrierShare& share);

  // A new share, which lives as long as the registry; and gives back what it
  // has, when its carrier ends.
  CarrierShare& NewCarrierShare();
  void CloseCarrierShare(CarrierShare& share);

  // --- Looking at members. Any thread, any state, never waits. ---

  // f(Thread&) for every slot, native or green; those of carriers show no
  // member.
  template <typename F>
  void ForEachMemberSlot(F f) const {
    slots_.ForEachSlot(f);
    green_slots_.ForEachSlot(f);
  }

  // Members now, threads being started included. acquire (M4): who is not
  // counted has ended; to decide about closing, AwaitPopulation is needed.
  uint32_t population() const {
    return population_.load(std::memory_order_acquire);
  }

  // Count membership changes: begun before the change becomes visible, and done
  // after it. A snapshot taken between a reading of `done` and an equal later
  // reading of `begun` was not disturbed by any change. seq_cst (M24).
  // Those of each carrier's own are added.
  uint64_t changes_begun() const;
  uint64_t changes_done() const;

  bool Pin(Thread& thread, uint64_t generation) {
    return TableOf(thread).Pin(thread, generation);
  }
  void Unpin(Thread& thread) { TableOf(thread).Unpin(thread); }

  Suspensions& suspensions() { return suspensions_; }

  // --- Timer slack. ---

  // Gives the calling thread, which is being started or attached or is the VM
  // thread, the slack of its own, else the runtime's, else leaves it alone. The
  // first refusal in a runtime is told to the sink; then it stays as it is.
  // Safe states only.
  void ApplyTimerSlack(std::optional<std::chrono::nanoseconds> own);

  // Keeps `what` as long as itself. Once, before there is any other thread.
  void KeepToTheEnd(std::shared_ptr<const void> what) {
    kept_ = std::move(what);
  }

  // --- Shutdown. ---

  // No member is admitted any more.
  void BeginClosing();
  bool closing() const { return closing_.load(); }

  // Sets the interrupt flag of every member but `except` (may be null), and
  // lifts all suspensions. BeginClosing() came first: there are no new ones.
  void InterruptAll(const Thread* except);

  // The calling member shuts the runtime down: no Shutdown waits for it from
  // now on until it leaves. Idempotent.
  void NoteCloser(Thread& current);
  uint32_t closers() const { return closers_.load(); }

  // Waits until no more than `allowed` members are left; false at the deadline.
  // Safe states only; BeginClosing() came first.
  bool AwaitPopulation(uint32_t allowed, Deadline deadline);

  // --- Fork. ---

  // Whether this process is a child, made by fork(2), of the one that created
  // the runtime: its threads do not exist here. One system call.
  bool InForkedChild() const;

  // In the child, by its only thread, with the world stopped: every member is
  // gone, no one is admitted any more, every lock is free. What the members
  // referred to is not destroyed: their destructors have no thread to run on.
  void BecomeForkedChild();

  // --- Embedder slots. ---

  // Error: ResourceExhausted.
  absl::StatusOr<ThreadLocalSlot> CreateThreadLocalSlot(
      ThreadLocalSlot::Destructor destructor);

  // Runs the destructors for the calling thread's values. Native.
  void RunThreadLocalDestructors(Thread& thread);

 private:
  uint64_t NextId(CarrierShare* share);
  absl::StatusOr<Thread*> ClaimSlot(const NewMember& member);
  void EndGeneration(Thread& thread);

  SlotTable& TableOf(const Thread& thread) {
    return thread.kind() == ThreadKind::kGreen ? green_slots_ : slots_;
  }

  StopControl control_;
  ThreadsLock threads_lock_;
  Suspensions suspensions_;
  SlotTable slots_;
  SlotTable green_slots_;
  const size_t default_stack_size_;
  const FastCpuClockConfig cpu_clock_;
  const pid_t process_;  // that created it
  const std::optional<std::chrono::nanoseconds> timer_slack_;
  EventSink* const sink_;
  std::atomic<bool> slack_refused_{false};  // and the sink was told

  // A futex word: Shutdown sleeps on it.
  std::atomic<uint32_t> population_{0};
  std::atomic<bool> closing_{false};
  std::atomic<uint32_t> closers_{0};  // of the population
  std::atomic<uint64_t> changes_begun_{0};
  std::atomic<uint64_t> changes_done_{0};
  std::atomic<CarrierShare*> shares_{nullptr};
  std::atomic<uint64_t> next_id_{1};

  std::atomic<uint32_t> local_slots_{0};
  std::atomic<ThreadLocalSlot::Destructor>
      local_destructors_[ThreadLocalSlot::kMaxSlots] = {};

  // Goes first.
  std::shared_ptr<const void> kept_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_REGISTRY_H_
