// Into Managed and out of it: the two Dekker pairs of the safepoint protocol.
// Embedders use the scopes of thread/scopes.h.

#ifndef STILLPOINT_RUNTIME_THREAD_TRANSITION_H_
#define STILLPOINT_RUNTIME_THREAD_TRANSITION_H_

#include <atomic>
#include <cstdint>

#include "runtime/base/thread_state.h"
#include "runtime/base/tls_block.h"
#include "runtime/os/fast_cpu_clock.h"
#include "runtime/thread/fence.h"
#include "runtime/thread/saved_context.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"

namespace stillpoint {

// Out of line: the calling thread has just stored a safe state, and somebody
// may sleep on that word. Wakes him.
void WakeWaiterOf(Thread& thread);

// Remembers when `thread` arrived, if a stop is on: call it before the store of
// the safe state.
void NoteArrival(Thread& thread);

// The rest of EnterManaged when a stop is on or the poll word is armed.
void EnterManagedSlow(Thread& thread);

// Dies with a sentence: a ranked lock is held across a transition.
[[noreturn]] void DieHoldingLock();

// What a way out of Managed does to the base of the thread's CPU clock. A green
// thread that waits does not leave its OS thread waiting, so it keeps it.
enum class CpuClockBase { kDrop, kKeep };

// Fast paths are inlined always: where a compiler believes the caller to be
// cold it would put a call into each transition.
namespace transition_internal {

[[gnu::always_inline]] inline void CheckHoldsNoLock() {
  if (tls_block.held_count != 0) [[unlikely]]
    DieHoldingLock();
}

// For reports: where this was inlined to. Compiled with the macro defined a
// transition takes two instructions more; without it none.
[[gnu::always_inline]] inline void NoteSite([[maybe_unused]] Thread& thread) {
#ifdef STILLPOINT_TRANSITION_SITES
  uintptr_t site;
#if defined(__x86_64__)
  asm volatile("leaq 0(%%rip), %0" : "=r"(site));
#else
  asm volatile("adr %0, ." : "=r"(site));
#endif
  // relaxed (M28): an address to print.
  thread.record().transition_site.store(site, std::memory_order_relaxed);
#endif
}

// Stores a safe state and looks whether somebody waits for it.
[[gnu::always_inline]] inline void PublishSafeState(
    Thread& thread, ThreadState to, CpuClockBase base = CpuClockBase::kDrop) {
  if (thread.control().fence.leave_fenced) {
    StoreThenFence(thread.state_word(), to);
  } else {
    // release (M7): the stopper that reads this state sees all that was done
    // in Managed, the saved context included. The compiler barrier is this
    // side's half of the pair (M2); the waiter's is OrderAllBeforeSleep().
    thread.state_word().store(to, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  // In a safe state the thread may wait where its CPU clock cannot tell. After
  // the store of the state: a signal handler takes no base from then on.
  if (base == CpuClockBase::kDrop) thread.cpu_clock().DropBase();
  // relaxed (M2): only whether to wake is read here; the order against the
  // store above is what the fence or the waiter's membarrier gives.
  if ((thread.poll_word().load(std::memory_order_relaxed) & kPollWaited) != 0)
      [[unlikely]] {
    WakeWaiterOf(thread);
  }
}

}  // namespace transition_internal

// Leaves Managed for the safe state `to`: publishes the frame, then the state.
[[gnu::always_inline]] inline void LeaveManaged(
    Thread& thread, ThreadState to, CpuClockBase base = CpuClockBase::kDrop) {
  transition_internal::CheckHoldsNoLock();
  transition_internal::NoteSite(thread);
  SaveContext(thread.record().saved);
  transition_internal::PublishSafeState(thread, to, base);
}

// Leaves Managed for Native at the end of a visit from native code. `outer` is
// what was published before the visit: its frames are gone, those of then are
// as they were, and the registers that they left their roots in may lie in no
// frame that the visit's own context would show.
[[gnu::always_inline]] inline void ReturnToNative(Thread& thread,
                                                  const SavedContext& outer) {
  transition_internal::CheckHoldsNoLock();
  transition_internal::NoteSite(thread);
  thread.record().saved = outer;
  transition_internal::PublishSafeState(thread, ThreadState::kNative);
}

// Tries to enter Managed from a safe state. False: a stop is on or the poll
// word is armed; the word says Managed, and the caller must StepBack().
[[gnu::always_inline]] inline bool TryEnterManaged(Thread& thread) {
  const StopControl& control = thread.control();
  if (control.fence.enter_fenced) {
    StoreThenFence(thread.state_word(), ThreadState::kManaged);
  } else {
    // relaxed (M1): Managed announces, it hands nothing over (for who reads
    // the record after Managed, see M8). The compiler barrier is this side's
    // half of the pair; the stopper's half is OrderAll().
    thread.state_word().store(ThreadState::kManaged, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  // acquire (M9, M10): pairs with the end of the last stop and with whoever
  // armed, so that managed code sees what the operations wrote while this
  // thread was safe.
  const uint32_t stop = control.stop_word.load(std::memory_order_acquire);
  const uint32_t poll = thread.poll_word().load(std::memory_order_acquire);
  return (static_cast<uint32_t>(StopControl::StopIsOn(stop)) | poll) == 0;
}

// After a failed TryEnterManaged: leaves again in the ordinary way, because the
// stopper may have seen Managed and be waiting. The saved context stays as it
// is: no managed code has run since, and an operation may be reading it.
inline void StepBack(Thread& thread) {
  transition_internal::PublishSafeState(thread, ThreadState::kBlocked);
}

// Enters Managed from a safe state; waits in the slow path while a stop is on.
[[gnu::always_inline]] inline void EnterManaged(Thread& thread) {
  transition_internal::CheckHoldsNoLock();
  transition_internal::NoteSite(thread);
  if (!TryEnterManaged(thread)) [[unlikely]]
    EnterManagedSlow(thread);
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_TRANSITION_H_
