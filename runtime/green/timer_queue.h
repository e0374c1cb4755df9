// The deadlines of the green threads that wait on one carrier.

#ifndef STILLPOINT_RUNTIME_GREEN_TIMER_QUEUE_H_
#define STILLPOINT_RUNTIME_GREEN_TIMER_QUEUE_H_

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"

namespace stillpoint {

class GreenThread;
class WaitWord;

// Lies in what waits: no timer allocates. Fields are the queue's.
struct Timer {
  int64_t nanos = 0;               // MonotonicNanos() at which it is due
  GreenThread* sleeper = nullptr;  // null while it is in no queue
  WaitWord* word = nullptr;        // where it is announced

  // Of a pairing heap: the first child, the next sibling, and the previous
  // sibling or, of a first child, the parent.
  Timer* child = nullptr;
  Timer* sibling = nullptr;
  Timer* previous = nullptr;
};

// A pairing heap (Fredman et al. 1986): adding is O(1), removing O(log n)
// amortised. Any thread; each call takes a leaf lock, so it neither waits for
// long nor stops.
class TimerQueue {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  TimerQueue() = default;
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;

  // Announces `sleeper` in `word` (WaitWord::Announce) and puts `timer` in,
  // which is in no queue; false, with neither done, if a bit of `mask` is set.
  // One step for the other calls: a timer that were in before would be gone if
  // it was due and found nobody in the word; one that came after could be put
  // in when the sleeper has been woken and has left.
  bool Announce(Timer& timer, int64_t nanos, GreenThread& sleeper,
                WaitWord& word, uint32_t mask);

  // Takes it out, if it is still in. Afterwards nobody looks at it.
  void Remove(Timer& timer);

  // When the earliest is due; kNever if there is none. relaxed (M85): a hint,
  // for who looks again in time.
  int64_t earliest() const { return earliest_.load(std::memory_order_relaxed); }

  // The same with the lock: whoever announces later finds what the caller has
  // stored before.
  int64_t earliest_in_order() const {
    RankedMutexLock lock(lock_);
    return earliest();
  }

  // Takes one out that is due at `now` and whose sleeper it could take from its
  // word, and returns that: the caller owes it a wake-up. Null if there is
  // none (any more). Those that are due, but have been woken, go too.
  GreenThread* PopDue(int64_t now);

 private:
  static Timer* Meld(Timer* a, Timer* b);
  static Timer* MeldSiblings(Timer* first);
  void RemoveLocked(Timer& timer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  mutable RankedMutex lock_{kTimerQueueLockRank};
  Timer* root_ ABSL_GUARDED_BY(lock_) = nullptr;
  std::atomic<int64_t> earliest_{kNever};
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_TIMER_QUEUE_H_
