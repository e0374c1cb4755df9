// The queues in which green threads are ready. Each belongs to a carrier, or to
// the scheduler; who may do what is said at each function.

#ifndef STILLPOINT_RUNTIME_GREEN_READY_QUEUES_H_
#define STILLPOINT_RUNTIME_GREEN_READY_QUEUES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "runtime/base/cpu.h"
#include "runtime/green/green_thread.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"

namespace stillpoint {

// First in, first out. One thread at a time.
class ReadyList {
 public:
  bool empty() const { return head_ == nullptr; }
  size_t size() const { return size_; }

  void PushBack(GreenThread& thread) {
    thread.next = nullptr;
    (tail_ != nullptr ? tail_->next : head_) = &thread;
    tail_ = &thread;
    ++size_;
  }

  GreenThread* PopFront() {
    GreenThread* thread = head_;
    if (thread == nullptr) return nullptr;
    head_ = thread->next;
    if (head_ == nullptr) tail_ = nullptr;
    --size_;
    return thread;
  }

 private:
  GreenThread* head_ = nullptr;
  GreenThread* tail_ = nullptr;
  size_t size_ = 0;
};

// What others make ready for one carrier: a stack that the carrier takes as a
// whole and turns round, so that it is first in, first out.
class alignas(kCacheLineSize) Inbox {
 public:
  // Any thread. seq_cst (M83) against the carrier that is about to sleep.
  void Push(GreenThread& thread) {
    // relaxed (M83): the exchange checks it, and publishes the link.
    GreenThread* head = head_.load(std::memory_order_relaxed);
    do {
      thread.next = head;
    } while (!head_.compare_exchange_weak(head, &thread));
  }

  // The carrier: whether there is anything. relaxed (M83): a hint; the look
  // before sleeping is `empty_in_order`.
  bool looks_empty() const {
    return head_.load(std::memory_order_relaxed) == nullptr;
  }
  // seq_cst (M83): the carrier has said before that it sleeps.
  bool empty_in_order() const { return head_.load() == nullptr; }

  // The carrier: calls f(GreenThread&) for each, oldest first.
  template <typename F>
  void Drain(F f) {
    // acquire (M83): the threads and their links, as their wakers left them.
    GreenThread* newest = head_.exchange(nullptr, std::memory_order_acquire);
    GreenThread* oldest = nullptr;
    while (newest != nullptr) {
      GreenThread* const next = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = next;
    }
    while (oldest != nullptr) {
      GreenThread* const thread = oldest;
      oldest = thread->next;
      f(*thread);
    }
  }

 private:
  std::atomic<GreenThread*> head_{nullptr};
};

// A ring from which every carrier may take, and only its own one puts in:
// threads that may run anywhere.
class alignas(kCacheLineSize) SharedRing {
 public:
  static constexpr uint32_t kCapacity = 256;

  // The owner. False if it is full.
  bool Push(GreenThread& thread) {
    // relaxed, acquire (M82): only the owner moves the tail; a slot is free
    // when who took it has moved the head.
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == kCapacity) return false;
    // relaxed (M82): published by the tail.
    slots_[tail % kCapacity].store(&thread, std::memory_order_relaxed);
    // seq_cst (M84) against a carrier that is about to sleep; as a release it
    // pairs with Pop.
    tail_.store(tail + 1);
    return true;
  }

  // Any carrier: the oldest; null if there is none.
  GreenThread* Pop() {
    // acquire (M82): the slot, and the thread in it, as the owner left them.
    uint32_t head = head_.load(std::memory_order_acquire);
    while (true) {
      const uint32_t tail = tail_.load(std::memory_order_acquire);
      if (static_cast<int32_t>(tail - head) <= 0) return nullptr;
      // relaxed (M82): what is read may be overwritten already, and the
      // exchange fails then.
      GreenThread* const thread =
          slots_[head % kCapacity].load(std::memory_order_relaxed);
      // release (M82): the slot has been read when its owner sees it free.
      if (head_.compare_exchange_weak(head, head + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        return thread;
      }
    }
  }

  // Any thread. relaxed (M82): a hint.
  uint32_t size_hint() const {
    const uint32_t tail = tail_.load(std::memory_order_relaxed);
    const uint32_t head = head_.load(std::memory_order_relaxed);
    return static_cast<int32_t>(tail - head) > 0 ? tail - head : 0;
  }
  // seq_cst (M84): the caller has said before that it sleeps.
  bool empty_in_order() const {
    return static_cast<int32_t>(tail_.load() - head_.load()) <= 0;
  }

 private:
  std::atomic<uint32_t> head_{0};
  std::atomic<GreenThread*> slots_[kCapacity] = {};
  alignas(kCacheLineSize) std::atomic<uint32_t> tail_{0};
};

// For what is started outside of any carrier, and what a ring has no room for.
class GlobalQueue {
 public:
  // Any thread.
  void Push(GreenThread& thread) {
    RankedMutexLock lock(lock_);
    list_.PushBack(thread);
    // seq_cst (M84) against a carrier that is about to sleep.
    size_.store(list_.size());
  }

  // Takes up to `most`, oldest first, and calls f(GreenThread&) for each with
  // the lock free.
  template <typename F>
  size_t Take(size_t most, F f) {
    ReadyList taken;
    {
      RankedMutexLock lock(lock_);
      while (taken.size() < most) {
        GreenThread* thread = list_.PopFront();
        if (thread == nullptr) break;
        taken.PushBack(*thread);
      }
      size_.store(list_.size());
    }
    const size_t count = taken.size();
    while (GreenThread* thread = taken.PopFront()) f(*thread);
    return count;
  }

  // relaxed (M84): a hint.
  size_t size_hint() const { return size_.load(std::memory_order_relaxed); }
  // seq_cst (M84): the caller has said before that it sleeps.
  bool empty_in_order() const { return size_.load() == 0; }

 private:
  RankedMutex lock_{kGreenQueueLockRank};
  ReadyList list_ ABSL_GUARDED_BY(lock_);
  std::atomic<size_t> size_{0};
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_READY_QUEUES_H_
