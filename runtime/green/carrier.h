// A carrier: an OS thread that runs green threads, one after another.

#ifndef STILLPOINT_RUNTIME_GREEN_CARRIER_H_
#define STILLPOINT_RUNTIME_GREEN_CARRIER_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/green/context.h"
#include "runtime/green/green_thread.h"
#include "runtime/green/ready_queues.h"
#include "runtime/green/stack_pool.h"
#include "runtime/green/timer_queue.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/wait_word.h"

namespace stillpoint {

class Scheduler;

// What it does between two green threads happens on the stack of the one that
// leaves, which is in a safe state by then, or of the one that comes, which is
// not in Managed yet; only when there is none, on the carrier's own.
class alignas(kCacheLineSize) Carrier {
 public:
  // `line` is its slot in the registry, `index` its place in the scheduler.
  Carrier(Scheduler& scheduler, Thread& line, uint32_t index);
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  // The carrier that the caller, a green thread or a carrier between two, is
  // on; null on other threads.
  static Carrier* Current();

  // The OS thread's whole life: runs what there is until the scheduler ends.
  void Run();

  // --- The green thread that runs on it, in a safe state. ---

  // Another one runs until this one is made ready, or until `deadline` (which
  // may be infinite). `word`, in which it is announced, may say that there is
  // nothing to wait for.
  void Park(GreenThread& self, WaitWord& word, uint32_t mask,
            Deadline deadline);

  // Those that are ready get their turn; returns at once if there are none.
  void Yield(GreenThread& self);

  // It has left the runtime, all but the slot; the stack goes back to the pool.
  [[noreturn]] void Exit(GreenThread& self);

  // --- Making ready. ---

  // On this carrier, by what runs on it: the thread is next.
  void ReadyNext(GreenThread& thread);
  // On this carrier: a new thread, which may run anywhere.
  void ReadyAnywhere(GreenThread& thread);
  // The same, and `ready_since` is set.
  void PushAnywhere(GreenThread& thread);
  // Whether what belongs to `other` may as well be made ready here.
  bool takes_over(const Carrier& other) const;
  // By any thread: it belongs to this carrier, which is woken if it sleeps;
  // where threads migrate, to any.
  void ReadyFromOutside(GreenThread& thread);

  // --- Others. ---

  // Wakes the OS thread if it sleeps, or is about to. Whoever calls this has
  // left before, where a carrier looks for work, what it is woken for.
  // seq_cst (M84).
  bool WakeIfIdle();

  // By the monitor: the next turn comes late, so that the usual number of them
  // would be too long for those who wait where it seldom looks.
  void LookAround() {
    // relaxed (M86): a request.
    look_around_.store(true, std::memory_order_relaxed);
  }

  // By the monitor, where threads migrate, when the carrier is stuck: what is
  // ready here goes where all carriers look.
  void GiveAway();

  // A thread that may run anywhere; null if there is none.
  GreenThread* Steal() { return ring_.Pop(); }

  Thread& line() { return line_; }
  pid_t tid() const { return tid_; }
  StackCache& stacks() { return stacks_; }
  CarrierShare& share() { return share_; }
  Scheduler& scheduler() const { return scheduler_; }
  TimerQueue& timers() { return timers_; }
  uint32_t index() const { return index_; }

  // What the monitor looks at. relaxed (M86): numbers.
  uint64_t switches() const {
    return switches_.load(std::memory_order_relaxed);
  }
  // Ready, and bound to this carrier (unless threads migrate: GiveAway).
  bool has_bound_work() const {
    return bound_.load(std::memory_order_relaxed) != 0 ||
           run_next_.load(std::memory_order_relaxed) != nullptr ||
           !inbox_.looks_empty();
  }
  bool has_shared_work() const { return ring_.size_hint() != 0; }
  // seq_cst (M84): the caller has said before that it sleeps, or looks no more.
  bool has_shared_work_in_order() const { return !ring_.empty_in_order(); }
  bool is_idle() const {
    return idle_.load(std::memory_order_relaxed) != kBusy;
  }

  // CPU time in nanoseconds that it has used for no green thread. Any thread;
  // of the time up to its last switch. relaxed (M86): a number.
  int64_t own_cpu_nanos() const {
    return own_nanos_.load(std::memory_order_relaxed);
  }

 private:
  // What is left to be done for the thread that has left, when nobody is on its
  // stack any more.
  struct Farewell {
    enum Kind { kNone, kAnnounce, kRequeue, kFreeStack } kind = kNone;
    GreenThread* thread = nullptr;
    WaitWord* word = nullptr;
    uint32_t mask = 0;
    Deadline deadline = Deadline::Infinite();
  };

  // The moment of a switch: one reading of the clocks for both threads.
  struct Now {
    int64_t cpu_nanos = 0;  // of this OS thread
    uint64_t ticks = 0;     // GreenTicks()
  };

  enum Idle : uint32_t { kBusy, kIdle };

  friend class GreenThread;
  friend class Scheduler;

  void Leave(GreenThread& self, GreenThread* next);
  Now ReadClocks();
  void Mount(GreenThread& next, const Now& now);
  void MountNone(const Now& now);
  void Unmount(GreenThread& self, const Now& now);
  void FinishSwitch();
  bool Announce(const Farewell& farewell);
  void PushBound(GreenThread& thread);
  void NoteBound();
  GreenThread* TakeNext();
  GreenThread* PickHere();
  GreenThread* PickAnywhere();
  GreenThread* TakeGlobal();
  GreenThread* StealFromOthers();
  void DrainInbox();
  void FireTimers();
  void NoteTimers();
  bool MustWait();
  void WaitForWork();
  bool SpinForWork();

  Scheduler& scheduler_;
  Thread& line_;
  const uint32_t index_;
  pid_t tid_ = 0;
  Context context_;  // its own stack
  StackCache stacks_;
  CarrierShare& share_;

  // The owner's alone.
  uint32_t run_next_streak_ = 0;
  uint32_t turns_ = 0;
  bool ring_is_first_ = false;
  uint32_t steal_seed_;
  ReadyList bound_list_;
  Farewell farewell_;
  int64_t loop_since_ = 0;   // CPU time when it began to run on its own stack
  uint64_t exit_ticks_ = 0;  // while a thread exits: the time of that; else 0

  // The owner's, and where threads migrate whoever takes it out.
  std::atomic<GreenThread*> run_next_{nullptr};
  std::atomic<bool> look_around_{false};
  std::atomic<uint32_t> bound_{0};
  std::atomic<uint64_t> switches_{0};
  std::atomic<int64_t> own_nanos_{0};

  SharedRing ring_;
  Inbox inbox_;
  TimerQueue timers_;
  // A futex word.
  alignas(kCacheLineSize) std::atomic<uint32_t> idle_{kBusy};
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_CARRIER_H_
