// What channels of all types have in common, and select. Internal.

#ifndef STILLPOINT_RUNTIME_SYNC_CHANNEL_CORE_H_
#define STILLPOINT_RUNTIME_SYNC_CHANNEL_CORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "runtime/base/clock.h"
#include "runtime/base/intrusive_list.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/sync/waiter.h"
#include "runtime/thread/thread.h"

namespace stillpoint {

// A thread that waits at several channels at once may be let go at one of them.
// Who wants to do that claims it, which one succeeds in, whichever channel's
// lock he holds.
//
// While the thread is still queueing up (kArming) it cannot be claimed, so that
// it may itself, under a channel's lock, deal with whom it finds there. Who
// meets it in that time goes on as if it were not there, and leaves a note
// (kMissed): it then begins again, and finds whoever missed it in his queue.
class Selection {
 public:
  void BeginArming() {
    // relaxed (M75): in no queue; queueing publishes it.
    state_.store(kArming, std::memory_order_relaxed);
  }

  // The thread itself: from now on it may be claimed. False if it was missed.
  bool EndArming();

  // The thread itself wants to go on otherwise. False if it is claimed.
  bool Abort();

  // Others, under the lock of the channel at which they found it.
  bool Claim();

 private:
  enum State : uint32_t { kArming, kMissed, kWaiting, kClaimed };
  std::atomic<uint32_t> state_{kArming};
};

// One end of a value's way, in a channel's queue; on the waiter's stack.
struct ChannelNode : IntrusiveNode<ChannelNode> {
  Waiter* waiter = nullptr;
  // A sender's value, to be moved from; where a receiver's is to be made.
  void* value = nullptr;

  // Of a select; else null and unused.
  Selection* selection = nullptr;
  ChannelNode** chosen = nullptr;  // where to say that it was this one

  bool closed = false;  // done because the channel was closed
  bool ended = false;   // about to be done, and in no queue of the channel

  bool Claim() { return selection == nullptr || selection->Claim(); }

  // Claimed, dequeued, dealt with; under the channel's lock. Not to be touched
  // afterwards.
  WakeUp Complete() {
    if (chosen != nullptr) *chosen = this;
    return waiter->Complete();
  }
};

using ChannelQueue = IntrusiveList<ChannelNode>;

// What became of an attempt that does not wait.
enum class ChannelResult {
  kOk,
  kWouldWait,  // for a receiver, for a sender, or for room
  kClosed,
};

class ChannelCore {
 public:
  ChannelCore(const ChannelCore&) = delete;
  ChannelCore& operator=(const ChannelCore&) = delete;

  // See Channel.
  bool Close();
  bool closed() const {
    const LeafLock lock(lock_);
    return closed_;
  }
  size_t size() const {
    const LeafLock lock(lock_);
    return count_;
  }
  size_t capacity() const { return capacity_; }

 protected:
  friend class SelectCase;

  explicit ChannelCore(size_t capacity);
  ~ChannelCore();

  // The first of `queue` that can be claimed, dequeued and claimed; null if
  // there is none. Not one of the calling thread's own `select`.
  static ChannelNode* ClaimFirst(ChannelQueue& queue, const Selection* own) {
    ChannelNode* node = queue.front();
    while (node != nullptr) {
      ChannelNode* const next = ChannelQueue::Next(*node);
      if (node->selection == nullptr) {
        queue.Remove(*node);
        return node;
      }
      if (node->selection != own) {
        queue.Remove(*node);
        if (node->Claim()) return node;
      }
      node = next;
    }
    return nullptr;
  }

  // A waiter at one channel.
  struct Waiting {
    Waiting(void* value, const void* its_channel, ChannelQueue& its_queue,
            RankedMutex& its_lock)
        : channel(its_channel),
          queue(its_queue),
          lock(its_lock),
          waiter(Thread::Current()) {
      node.waiter = &waiter;
      node.value = value;
    }
    const void* const channel;
    ChannelQueue& queue;
    RankedMutex& lock;
    Waiter waiter;
    ChannelNode node;
  };

  // Waits until `waiting`, which is in its queue, is done. From the moment at
  // which it was queued the other side may be through with the channel, which
  // so may be gone: channel and queue are mere addresses, until it is seen
  // under the lock that the node is still there. Error: as Send, Receive.
  static absl::Status Await(Waiting& waiting, Deadline deadline,
                            std::string_view what);

 public:
  // In the child of a fork, by its only thread: every lock is free.
  static void ResetLocksInForkedChild();

 protected:
  static absl::Status RefusedError(std::string_view what);
  static absl::Status ClosedError(std::string_view what);

  // One of a table that is never destroyed. A lock in the channel itself would
  // not do: the two threads of a hand-over come out of it at different times,
  // and the first one may destroy the channel while the other still has to give
  // the lock back, or takes it to see that its wait is over.
  RankedMutex& lock_;
  bool closed_ ABSL_GUARDED_BY(lock_) = false;

  // The ring of values.
  const size_t capacity_;
  size_t first_ ABSL_GUARDED_BY(lock_) = 0;
  size_t count_ ABSL_GUARDED_BY(lock_) = 0;

  ChannelQueue senders_ ABSL_GUARDED_BY(lock_);
  ChannelQueue receivers_ ABSL_GUARDED_BY(lock_);
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SYNC_CHANNEL_CORE_H_
