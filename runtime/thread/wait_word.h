// The word on which a thread waits for anything that another thread does.

#ifndef STILLPOINT_RUNTIME_THREAD_WAIT_WORD_H_
#define STILLPOINT_RUNTIME_THREAD_WAIT_WORD_H_

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"

namespace stillpoint {

// One futex word for the permit of the parker, the interrupt flag and the
// runtime's own events. Because they are bits of one word, no wake-up is lost
// between looking and sleeping, and an interrupt ends whatever wait is going
// on. Each is sticky until the owner takes it.
class WaitWord {
 public:
  enum Bit : uint32_t {
    kPermit = 1u << 0,     // Unpark
    kInterrupt = 1u << 1,  // Interrupt
    kEvent = 1u << 2,      // an operation is done, a thread has ended
    kClaim = 1u << 3,      // a proxy has given back the owner's claim. Not
                           // kEvent: the owner may wait for it on its way back
                           // to Managed in the middle of another wait
  };

  // Any thread. Everything before it is seen by the owner that finds the bit.
  // After the store the owner may be gone already; the wake-up that follows is
  // harmless as long as the word's memory is mapped.
  void Set(uint32_t bits);

  // Set without the wake-up, for who wants to give up a lock in between: the
  // owner, once awake, would run into it. Returns the address to give to
  // FutexWakeRaw (for one sleeper), or null if nobody sleeps. By then the owner
  // may have found the bits, and the word may be gone: a wake-up uses its
  // address alone, and whoever sleeps on a word there looks at it again.
  const void* SetQuietly(uint32_t bits);

  // Owner only, in a safe state: sleeps until one of `mask` is set; returns
  // those that are (not taken), or 0 at the deadline. Bits outside the mask do
  // not end it.
  uint32_t Wait(uint32_t mask, Deadline deadline);

  // Owner only: clears `bits` and returns those of them that were set.
  uint32_t Take(uint32_t bits);

  // A glance. Any thread. acquire (M15): as in Wait.
  uint32_t Peek() const { return word_.load(std::memory_order_acquire); }

 private:
  static constexpr uint32_t kSleeping = 1u << 31;

  std::atomic<uint32_t> word_{0};
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_WAIT_WORD_H_
