// Waiting on a 32-bit word in the kernel (futex(2), process-private).

#ifndef STILLPOINT_RUNTIME_OS_FUTEX_H_
#define STILLPOINT_RUNTIME_OS_FUTEX_H_

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"

namespace stillpoint {

enum class FutexResult {
  kWoken,         // somebody called FutexWake (or the kernel woke us early)
  kValueChanged,  // the word was not `expected` when the kernel looked
  kTimedOut,
};

// The system calls behind the two functions below; `word` is four bytes.
FutexResult FutexWaitRaw(const void* word, uint32_t expected,
                         Deadline deadline);
int FutexWakeRaw(const void* word, int count);

// Sleeps until woken, provided `word` holds `expected`. The kernel's compare
// and its queueing are one step against FutexWake, and both sides pass a full
// memory barrier (futex(2), kernel/futex/core.c). Signals do not end the wait
// (incident G3). The caller must be in a state in which it may block.
template <typename T>
FutexResult FutexWait(const std::atomic<T>& word, T expected,
                      Deadline deadline) {
  static_assert(sizeof(std::atomic<T>) == sizeof(uint32_t),
                "the kernel waits on a plain 32-bit word");
  return FutexWaitRaw(&word, static_cast<uint32_t>(expected), deadline);
}

// Wakes at most `count` sleepers; returns how many there were. The word may
// belong to somebody else by now, as long as its memory is still mapped: that
// costs its new owner one early return of FutexWait.
template <typename T>
int FutexWake(const std::atomic<T>& word, int count) {
  static_assert(sizeof(std::atomic<T>) == sizeof(uint32_t));
  return FutexWakeRaw(&word, count);
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_FUTEX_H_
