// The words through which the stopper and every mutator of one runtime meet.

#ifndef STILLPOINT_RUNTIME_THREAD_STOP_CONTROL_H_
#define STILLPOINT_RUNTIME_THREAD_STOP_CONTROL_H_

#include <atomic>
#include <cstdint>

#include "runtime/base/cpu.h"
#include "runtime/os/membarrier.h"
#include "runtime/thread/fence.h"

namespace stillpoint {

class Thread;

// Bits of a thread's poll word; any bit sends its owner into the slow path.
// Others set them by fetch_or; only the owner clears them, by exchange.
enum PollBit : uint32_t {
  kPollSafepoint = 1u << 0,  // a stop is on, or was
  kPollWaited = 1u << 1,     // somebody sleeps until this thread is safe
  kPollHandshake = 1u << 2,  // a handshake is queued
  kPollYield = 1u << 3,      // a green thread has used up its time slice
};

// One per runtime. Outlives the Runtime while a thread is attached.
struct alignas(kCacheLineSize) StopControl {
  // The epoch and futex of the stop: odd while a stop is on. Written by the VM
  // thread alone. Waited on only as WaitWhileStopOn() does.
  std::atomic<uint32_t> stop_word{0};

  // Set before the last stop of a runtime that has ended: the stop word stays
  // odd for ever, and late threads park there. Exits do not wait for it.
  std::atomic<bool> closed{false};

  FenceMode fence;

  // That this process may use: whether spinning can be of any use.
  int processors = 1;

  // Nanoseconds per tick of the time stamp counter, times 2^kTscShift, where
  // that is how green threads measure; 0 where they count nanoseconds.
  uint32_t ticks_multiplier = 0;

  // Set once by green/: lets the carrier of the calling green thread, which is
  // in Managed, run another one that is ready.
  void (*yield_slice)(Thread&) = nullptr;

  // Set once by safepoint/: waits while a stop is on, serves the poll word,
  // enters Managed. Called in Blocked, returns in Managed.
  void (*serve_poll)(Thread&) = nullptr;

  static constexpr bool StopIsOn(uint32_t word) { return (word & 1) != 0; }

  // The stopper's and the requester's side of every Dekker pair: after the stop
  // word, after arming (M1, M3). Never weaker than the mutators' side needs.
  void OrderAll() const {
    if (fence.enter_fenced) {
      FullFence();
    } else {
      Membarrier();
    }
  }

  // The same before sleeping on a thread's state word (M2), against *leaving*,
  // which is unfenced wherever there is a membarrier.
  void OrderAllBeforeSleep() const {
    if (fence.leave_fenced) {
      FullFence();
    } else {
      Membarrier();
    }
  }
};

// Sleeps while the stop that `control` shows is on; returns at once if none is.
// The caller is in a safe state. Wakes two more sleepers if it slept and the
// stop that it slept for is over: the chain that keeps the stopper from waking
// everybody itself. For ever on a closed runtime.
void WaitWhileStopOn(StopControl& control);

// What start, exit, attach and detach do about a stop: waits for the end of the
// one that is on, if any, and never for another one (else back-to-back stops
// would starve them; this relies on the futex queue, which is first in, first
// out among threads of equal priority, so a real-time sleeper may still
// overtake others). Returns at once on a closed runtime. Safe states only.
void WaitForEndOfPresentStop(StopControl& control);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_STOP_CONTROL_H_
