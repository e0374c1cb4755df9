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
  // Most are woken when the lock is free. Not one after the other, each with
  // the lock taken anew: the first one that comes back may destroy the channel.
  constexpr size_t kBatch = 16;
  WakeUp wake_ups[kBatch];
  size_t count = 0;
  {
    const LeafLock lock(lock_);
    if (closed_) return false;
    closed_ = true;
    for (ChannelQueue* queue : {&receivers_, &senders_}) {
      while (ChannelNode* node = queue->PopFront()) {
        if (!node->Claim()) continue;
        if (count == kBatch) {
          for (WakeUp& wake_up : wake_ups) wake_up.Wake();
          count = 0;
        }
        node->closed = true;
        wake_ups[count++] = node->Complete();
      }
    }
  }
  for (size_t i = 0; i < count; ++i) wake_ups[i].Wake();
  return true;
}

namespace {

// Not inlined, for the thread-local block: see parking_lot.cc. False if it is
// done after all; then the channel may be gone.
[[gnu::noinline]] bool GiveUp(ChannelNode& node, ChannelQueue& queue,
                              RankedMutex& channel_lock) {
  const LeafLock lock(channel_lock);
  if (node.waiter->done()) return false;
  queue.Remove(node);
  return true;
}

}  // namespace

absl::Status ChannelCore::Await(Waiting& waiting, Deadline deadline,
                                std::string_view what) {
  ChannelNode& node = waiting.node;
  const WaitResult result =
      waiting.waiter.Wait(WaitingFor(WaitKind::kChannel, waiting.channel),
                          {.deadline = deadline}, waiting.lock);
  if (result != WaitResult::kDone &&
      GiveUp(node, waiting.queue, waiting.lock)) {
    if (result == WaitResult::kInterrupted) waiting.waiter.TakeInterrupt();
    return WaitError(result, what);
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
