// A thread of a runtime, as the thread itself and its JIT see it.

#ifndef STILLPOINT_RUNTIME_THREAD_THREAD_H_
#define STILLPOINT_RUNTIME_THREAD_THREAD_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/cpu.h"
#include "runtime/base/thread_state.h"
#include "runtime/base/tls_block.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread_local_slot.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

class FastCpuClock;  // os/fast_cpu_clock.h

// One cache line: the two words that the safepoint protocol reads and writes,
// and what its owner needs at every transition. Its address is good for the
// thread's life, also for a green one that changes carriers; other threads keep
// a ThreadHandle instead, since the line is reused.
class alignas(kCacheLineSize) Thread {
 public:
  // The calling thread; null while it is not attached to a runtime. A JIT keeps
  // it in a register.
  static Thread* Current() { return tls_block.current; }

  // The calling thread. Dies with a sentence if it is not attached.
  static Thread& CurrentOrDie() {
    Thread* current = tls_block.current;
    if (current == nullptr) [[unlikely]]
      DieUnattached();
    return *current;
  }

  // The offset of the 32-bit poll word from the Thread, part of the ABI: a JIT
  // polls by `cmp dword ptr [thread + kPollWordOffset], 0` and, if it is not 0,
  // calls PollSlow(thread) (safepoint/poll.h) with its roots on the stack or in
  // callee-saved registers.
  static constexpr size_t kPollWordOffset = 4;

  // Constant for the thread's life. Owner, or a VM operation.
  std::string_view name() const { return record_->name; }
  // Unique within the runtime, never reused. Owner, or a VM operation.
  uint64_t id() const { return record_->id; }
  // Native or green.
  ThreadKind kind() const { return record_->kind; }
  // The kernel's id; 0 while the thread is New. Of a green thread its carrier's
  // at this moment, and 0 while it has none.
  pid_t tid() const {
    // relaxed (M28): a number, nothing is reached through it.
    return record_->tid.load(std::memory_order_relaxed);
  }
  // The state at this moment. Any thread that may use the Thread.
  // acquire (M1, M7, M8): what was done before the store of the state is seen.
  ThreadState state() const { return state_.load(std::memory_order_acquire); }

  // What it waits for at this moment. Any thread that may use the Thread.
  WaitingFor waiting_for() const { return record_->waiting_for.Get(); }

  // The embedder's pointer for this thread; null until set. Owner, or a VM
  // operation. `slot` must come from this thread's runtime.
  void* local(ThreadLocalSlot slot) const {
    // acquire (M19): pairs with set_local, for what the pointer leads to.
    return record_->locals[slot.index].load(std::memory_order_acquire);
  }
  // Owner only.
  void set_local(ThreadLocalSlot slot, void* value) {
    // release (M19): an operation may follow the pointer at once.
    record_->locals[slot.index].store(value, std::memory_order_release);
  }

  // Whether an interrupt is pending; it stays so. Owner only.
  bool interrupted() const {
    return (record_->wait.Peek() & WaitWord::kInterrupt) != 0;
  }
  // The same, and takes it. Owner only.
  bool ConsumeInterrupt() {
    return record_->wait.Take(WaitWord::kInterrupt) != 0;
  }

  // Whether ThreadHandle::Cancel was called: then it is also interrupted, for
  // good. Owner only.
  bool cancelled() const {
    return (record_->wait.Peek() & WaitWord::kCancel) != 0;
  }

  // --- For the runtime's own floors. ---

  // Written by its owner alone.
  std::atomic<ThreadState>& state_word() { return state_; }
  // See PollBit.
  std::atomic<uint32_t>& poll_word() { return poll_; }
  StopControl& control() const { return *control_; }
  ThreadRecord& record() const { return *record_; }

  // The CPU clock of the OS thread that this one runs on, and what its readings
  // lack to this thread's own CPU time: 0 for a native thread. Owner only.
  FastCpuClock& cpu_clock() const { return *cpu_clock_; }
  int64_t cpu_offset() const { return cpu_offset_; }
  void set_cpu_clock(FastCpuClock& clock, int64_t offset) {
    cpu_clock_ = &clock;
    cpu_offset_ = offset;
  }

  // Of a carrier: the green thread that it runs now, null in between.
  std::atomic<Thread*>& mounted() { return mounted_; }

  // Slot table only: before the slot's first use.
  void Bind(StopControl& control, ThreadRecord& record) {
    control_ = &control;
    record_ = &record;
  }
  bool bound() const { return record_ != nullptr; }

 private:
  [[noreturn]] static void DieUnattached();
  friend struct ThreadLayoutCheck;

  std::atomic<ThreadState> state_{ThreadState::kVacant};
  std::atomic<uint32_t> poll_{0};
  StopControl* control_ = nullptr;
  ThreadRecord* record_ = nullptr;
  FastCpuClock* cpu_clock_ = nullptr;
  int64_t cpu_offset_ = 0;
  std::atomic<Thread*> mounted_{nullptr};
};

struct ThreadLayoutCheck {
  static_assert(sizeof(Thread) == kCacheLineSize);
  static_assert(offsetof(Thread, poll_) == Thread::kPollWordOffset);
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_THREAD_H_
