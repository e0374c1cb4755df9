#include "runtime/thread/transition.h"

#include <atomic>
#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/lock/held_locks.h"
#include "runtime/os/futex.h"
#include "runtime/thread/fence.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"

namespace stillpoint {

void WakeWaiterOf(Thread& thread) {
  // Somebody wants to know, but perhaps sleeps on another thread just now: with
  // many to wait for, most need no system call. Dekker (M2): the safe state is
  // stored, and who is about to sleep counts itself, then looks at the state.
  FullFence();
  // The waited bit stays until the owner's next way in: setting it again is
  // what an unneeded wake-up costs, losing it would cost a hang.
  if (thread.record().state_sleepers.load(std::memory_order_relaxed) != 0) {
    FutexWake(thread.state_word(), INT32_MAX);
  }
  // Who waits for a handshake sleeps on a word of its own, and set its bit
  // before the other. relaxed (M2): what it queued is read under the lock.
  if ((thread.poll_word().load(std::memory_order_relaxed) & kPollHandshake) !=
      0) {
    thread.record().handshakes.TellFirst();
  }
}

void NoteArrival(Thread& thread) {
  // relaxed (M27): a hint whether the clock is worth reading, and a stamp that
  // the release store of the safe state publishes.
  if (!StopControl::StopIsOn(
          thread.control().stop_word.load(std::memory_order_relaxed))) {
    return;
  }
  thread.record().arrived_at.store(MonotonicNanos(), std::memory_order_relaxed);
}

void EnterManagedSlow(Thread& thread) {
  NoteArrival(thread);
  StepBack(thread);
  thread.control().serve_poll(thread);
}

void DieHoldingLock() {
  Die({"lock ", InnermostHeldLock()->name(),
       " is held across a transition into or out of Managed: a stopped thread "
       "must hold no ranked lock, so release it first"});
}

}  // namespace stillpoint
