// How long who waits for threads to become safe spins and sleeps: the stopper,
// and the requester of a handshake.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_WAIT_BOUNDS_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_WAIT_BOUNDS_H_

#include <cstdint>

namespace stillpoint {

// Spinning, before sleeping: about what a sleep and a wake-up on another core
// cost. A thread that polls often arrives within it.
inline constexpr int64_t kSpinNanos = 20'000;

// A sleep without the membarrier against leaving, which costs some
// microseconds, and those from all that run. Longer than most waits, and than a
// scheduler tick: a timer that is earlier than that costs as much as the
// membarrier.
inline constexpr int64_t kUnorderedNanos = 5'000'000;

// How often who sleeps for somebody that is late looks whether the runtime has
// ended, or somebody should be told. Only while a thread is late.
inline constexpr int64_t kLateCheckNanos = 50'000'000;

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_WAIT_BOUNDS_H_
