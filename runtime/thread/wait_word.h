// The word on which a thread waits for anything that another thread does.

#ifndef STILLPOINT_RUNTIME_THREAD_WAIT_WORD_H_
#define STILLPOINT_RUNTIME_THREAD_WAIT_WORD_H_

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/thread/blocker.h"

namespace stillpoint {

// A wake-up that is owed. Give it with Wake(), once, when the locks are free:
// an OS thread would at worst run into them, a green one must get it to run
// again. Copies are the same wake-up.
class WakeUp {
 public:
  WakeUp() = default;

  // By then the sleeper's word may be gone: an OS thread is woken by the
  // address alone, and whoever sleeps on a word there looks at it again.
  void Wake() const;

  // Whether there is one to give.
  explicit operator bool() const {
    return futex_ != nullptr || blocker_ != nullptr;
  }

 private:
  friend class WaitWord;
  explicit WakeUp(const void* futex) : futex_(futex) {}
  explicit WakeUp(Blocker* blocker) : blocker_(blocker) {}

  const void* futex_ = nullptr;
  Blocker* blocker_ = nullptr;
};

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
    kResume = 1u << 4,     // the owner is suspended no more; as kClaim
    kCancel = 1u << 5,     // Cancel: from now on kInterrupt cannot be taken
  };

  // Any thread. Everything before it is seen by the owner that finds the bit.
  // After the store the owner may be gone already; the wake-up that follows is
  // harmless as long as the word's memory is mapped.
  void Set(uint32_t bits);

  // Set without the wake-up, for who wants to give up a lock in between: the
  // owner, once awake, would run into it.
  [[nodiscard]] WakeUp SetQuietly(uint32_t bits);

  // Owner only, in a safe state: sleeps until one of `mask` is set; returns
  // those that are (not taken), or 0 at the deadline. Bits outside the mask do
  // not end it.
  uint32_t Wait(uint32_t mask, Deadline deadline);

  // Owner only: clears `bits` and returns those of them that were set. Once
  // kCancel is set kInterrupt stays, unless both are taken.
  uint32_t Take(uint32_t bits);

  // Before the slot's next thread is published: nothing is set. Whoever was
  // late for the last one may still set a bit, as at any time.
  void Reset() {
    // relaxed (M15): published with the thread.
    word_.store(0, std::memory_order_relaxed);
  }

  // Blocker only, for the owner, which does not run: the green thread sleeps
  // until somebody sets a bit. False, and it does not, if one of `mask` is
  // set. In between MakeReady may have been called already.
  bool Announce(Blocker& sleeper, uint32_t mask);

  // Takes the announced sleeper out of the word, without setting anything: the
  // caller owes it MakeReady. False if there is none (any more).
  bool TakeSleeper();

  // Whether one is announced. Any thread; a glance.
  bool HasBlockedSleeper() const { return (Peek() & kBlocked) != 0; }

  // A glance. Any thread. acquire (M15): as in Wait.
  uint32_t Peek() const { return word_.load(std::memory_order_acquire); }

 private:
  static constexpr uint32_t kSleeping = 1u << 31;  // in the kernel
  static constexpr uint32_t kBlocked = 1u << 30;   // by its blocker

  std::atomic<uint32_t> word_{0};
  // Written by Announce before the bit, read by who has taken the bit.
  Blocker* blocked_ = nullptr;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_WAIT_WORD_H_
