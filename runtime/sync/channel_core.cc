#include "runtime/sync/channel_core.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/absl_string.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/sync/waiter.h"
#include "runtime/thread/wait_check.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

// M75: who claims and who is claimed hand over nothing by the state: that is
// done by the channels' locks and by Waiter::Complete. So relaxed would do for
// the word alone; acq_rel keeps what follows a claim behind it for the reader.

bool Selection::EndArming() {
  // acq_rel, relaxed (M75): see above.
  uint32_t seen = kArming;
  return state_.compare_exchange_strong(
      seen, kWaiting, std::memory_order_acq_rel, std::memory_order_relaxed);
}

bool Selection::Abort() {
  // acq_rel, relaxed (M75): see above.
  uint32_t seen = kWaiting;
  return state_.compare_exchange_strong(
      seen, kClaimed, std::memory_order_acq_rel, std::memory_order_relaxed);
}

bool Selection::Claim() {
  // acq_rel, relaxed (M75): see above.
  uint32_t seen = state_.load(std::memory_order_relaxed);
  while (seen == kWaiting || seen == kArming) {
    const uint32_t wanted = seen == kWaiting ? kClaimed : kMissed;
    if (state_.compare_exchange_weak(seen, wanted, std::memory_order_acq_rel,
                                     std::memory_order_relaxed)) {
      return wanted == kClaimed;
    }
  }
  return false;
}

namespace {

// Hashed by address. Two channels may share a lock, which costs no more than a
// wait now and then; two locks share no cache line.
struct alignas(kCacheLineSize) PaddedLock {
  constexpr PaddedLock() : lock(kChannelLockRank) {}
  RankedMutex lock;
};
constexpr int kLockBits = 10;
constinit PaddedLock locks[size_t{1} << kLockBits];

RankedMutex& LockFor(const void* channel) {
  const uint64_t hash =
      reinterpret_cast<uintptr_t>(channel) * uint64_t{0x9e3779b97f4a7c15};
  return locks[hash >> (64 - kLockBits)].lock;
}

}  // namespace

void ChannelCore::ResetLocksInForkedChild() {
  for (PaddedLock& padded : locks) padded.lock.ResetInForkedChild();
}

ChannelCore::ChannelCore(size_t capacity)
    : lock_(LockFor(this)), capacity_(capacity) {}

ChannelCore::~ChannelCore() {
  const LeafLock lock(lock_);
  STILLPOINT_CHECK(senders_.empty() && receivers_.empty(),
                   "a channel is destroyed while a thread waits at it: close "
                   "it, and join the thread, first");
}

bool ChannelCore::Close() {
  RankedMutex& channel_lock = lock_;
  ChannelQueue ended;
  {
    const LeafLock lock(lock_);
    if (closed_) return false;
    closed_ = true;
    for (ChannelQueue* queue : {&receivers_, &senders_}) {
      while (ChannelNode* node = queue->PopFront()) {
        if (!node->Claim()) continue;
        node->closed = true;
        node->ended = true;
        ended.PushBack(*node);
      }
    }
  }
  // Woken in batches, each with no lock held. The first one that comes back may
  // destroy the channel, so the rest of them is in a list of its own by now.
  constexpr size_t kBatch = 16;
  WakeUp wake_ups[kBatch];
  size_t count;
  do {
    count = 0;
    {
      const LeafLock lock(channel_lock);
      while (count < kBatch) {
        ChannelNode* const node = ended.PopFront();
        if (node == nullptr) break;
        wake_ups[count++] = node->Complete();
      }
    }
    for (size_t i = 0; i < count; ++i) wake_ups[i].Wake();
  } while (count == kBatch);
  return true;
}

namespace {

enum class GivenUp { kYes, kDone, kSoonDone };

// Not inlined, for the thread-local block: see parking_lot.cc. Unless the
// answer is yes the channel may be gone.
[[gnu::noinline]] GivenUp GiveUp(ChannelNode& node, ChannelQueue& queue,
                                 RankedMutex& channel_lock) {
  const LeafLock lock(channel_lock);
  if (node.waiter->done()) return GivenUp::kDone;
  if (node.ended) return GivenUp::kSoonDone;
  queue.Remove(node);
  return GivenUp::kYes;
}

}  // namespace

absl::Status ChannelCore::Await(Waiting& waiting, Deadline deadline,
                                std::string_view what) {
  ChannelNode& node = waiting.node;
  const WaitingFor channel(WaitKind::kChannel, waiting.channel);
  const WaitResult result =
      waiting.waiter.Wait(channel, {.deadline = deadline}, waiting.lock);
  if (result != WaitResult::kDone) {
    switch (GiveUp(node, waiting.queue, waiting.lock)) {
      case GivenUp::kYes:
        if (result == WaitResult::kInterrupted) waiting.waiter.TakeInterrupt();
        return WaitError(result, what);
      case GivenUp::kSoonDone:
        waiting.waiter.Wait(channel, {.interruptible = false}, waiting.lock);
        break;
      case GivenUp::kDone:
        break;
    }
  }
  return node.closed ? ClosedError(what) : absl::OkStatus();
}

absl::Status ChannelCore::RefusedError(std::string_view what) {
  return CheckMayWait(what);
}

absl::Status ChannelCore::ClosedError(std::string_view what) {
  return absl::OutOfRangeError(
      absl::StrCat(ToAbsl(what), ": the channel is closed"));
}

}  // namespace stillpoint
