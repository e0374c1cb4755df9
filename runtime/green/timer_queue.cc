#include "runtime/green/timer_queue.h"

#include <atomic>
#include <cstdint>
#include <utility>

#include "runtime/green/green_thread.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/thread/wait_word.h"

namespace stillpoint {

Timer* TimerQueue::Meld(Timer* a, Timer* b) {
  if (a == nullptr) return b;
  if (b == nullptr) return a;
  if (b->nanos < a->nanos) std::swap(a, b);
  b->previous = a;
  b->sibling = a->child;
  if (a->child != nullptr) a->child->previous = b;
  a->child = b;
  return a;
}

// The two passes of a pairing heap, in a loop: a million timers may be
// siblings, and the stack is small.
Timer* TimerQueue::MeldSiblings(Timer* first) {
  Timer* pairs = nullptr;  // linked through `sibling`, last pair first
  while (first != nullptr) {
    Timer* const a = first;
    Timer* const b = a->sibling;
    first = b != nullptr ? b->sibling : nullptr;
    a->sibling = nullptr;
    if (b != nullptr) b->sibling = nullptr;
    Timer* const pair = Meld(a, b);
    pair->sibling = pairs;
    pairs = pair;
  }
  Timer* root = nullptr;
  while (pairs != nullptr) {
    Timer* const pair = pairs;
    pairs = pair->sibling;
    pair->sibling = nullptr;
    root = Meld(root, pair);
  }
  if (root != nullptr) root->previous = nullptr;
  return root;
}

bool TimerQueue::Announce(Timer& timer, int64_t nanos, GreenThread& sleeper,
                          WaitWord& word, uint32_t mask) {
  RankedMutexLock lock(lock_);
  if (!word.Announce(sleeper, mask)) return false;
  timer.nanos = nanos;
  timer.sleeper = &sleeper;
  timer.word = &word;
  timer.child = timer.sibling = timer.previous = nullptr;
  root_ = Meld(root_, &timer);
  // relaxed (M85): see earliest().
  earliest_.store(root_->nanos, std::memory_order_relaxed);
  return true;
}

void TimerQueue::Remove(Timer& timer) {
  RankedMutexLock lock(lock_);
  if (timer.sleeper != nullptr) RemoveLocked(timer);
}

void TimerQueue::RemoveLocked(Timer& timer) {
  Timer* const rest = MeldSiblings(timer.child);
  if (&timer == root_) {
    root_ = rest;
  } else {
    Timer* const previous = timer.previous;
    (previous->child == &timer ? previous->child : previous->sibling) =
        timer.sibling;
    if (timer.sibling != nullptr) timer.sibling->previous = previous;
    root_ = Meld(root_, rest);
  }
  timer.sleeper = nullptr;
  // relaxed (M85): see earliest().
  earliest_.store(root_ != nullptr ? root_->nanos : kNever,
                  std::memory_order_relaxed);
}

GreenThread* TimerQueue::PopDue(int64_t now) {
  RankedMutexLock lock(lock_);
  while (root_ != nullptr && root_->nanos <= now) {
    Timer& due = *root_;
    GreenThread* const sleeper = due.sleeper;
    // Under the lock, so that the word is there: its owner takes the timer out
    // before it leaves the wait.
    WaitWord& word = *due.word;
    RemoveLocked(due);
    if (word.TakeSleeper()) return sleeper;
  }
  return nullptr;
}

}  // namespace stillpoint
