// Channels: values from thread to thread, in order.

#ifndef STILLPOINT_RUNTIME_SYNC_CHANNEL_H_
#define STILLPOINT_RUNTIME_SYNC_CHANNEL_H_

#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/sync/channel_core.h"
#include "runtime/sync/waiter.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/wait_check.h"

namespace stillpoint {

// Whether a send or a receive failed because the channel is closed. (Code
// OutOfRange, which the runtime uses for nothing else.)
inline bool IsClosed(const absl::Status& status) {
  return absl::IsOutOfRange(status);
}

// A queue of at most `capacity` values. With a capacity of 0, values go from
// hand to hand: each send waits for its receive. Any number of threads of any
// runtime, and unattached ones, at either end. Values arrive in the order in
// which they were sent; waiting threads are served in the order in which they
// came. Select (select.h) waits at several channels.
//
// All calls may be made in Managed and in safe states. One that waits makes a
// Managed thread Blocked meanwhile, and is a poll for it. A value that belongs
// to managed data may be sent and received in Managed only.
//
// T is moved with a lock of the channel held: its move constructor and its
// destructor may not throw, and may neither poll, nor wait, nor use the
// channel. A type that cannot promise that goes through a std::unique_ptr.
//
// Errors of Send and Receive: IsClosed(); Cancelled ("Interrupted …") when
// interrupted while it waits, which takes the interrupt; DeadlineExceeded;
// FailedPrecondition, at once and even if it would not have to wait, from a VM
// operation, in the closure of a handshake, with a ranked lock held, or inside
// a NoSafepointScope: use TrySend and TryReceive there. What is ready is done
// whatever the deadline, and in spite of a pending interrupt. A message is made
// for errors only.
//
// Its memory may go as soon as no call is going on but those whose partner has
// returned: the receiver of the last value may destroy the channel, although
// the sender may not have returned from Send yet. Nobody may wait at it then.
template <typename T>
class Channel : public ChannelCore {
  static_assert(std::is_object_v<T> && !std::is_const_v<T>);
  static_assert(std::is_nothrow_move_constructible_v<T> &&
                    std::is_nothrow_destructible_v<T>,
                "a channel moves values under its lock: send a unique_ptr");

 public:
  // Takes memory for all of them at once.
  explicit Channel(size_t capacity = 0)
      : ChannelCore(capacity),
        values_(capacity == 0 ? nullptr
                              : std::allocator<T>().allocate(capacity)) {}

  // Destroys the values that are left. Dies with a sentence if anybody waits.
  ~Channel() {
    DestroyValues();
    if (capacity() > 0) std::allocator<T>().deallocate(values_, capacity());
  }

  // Sends `value`: moves from it if the status is OK; else it is as it was. A
  // channel that is closed while this waits does not take it.
  [[nodiscard]] absl::Status Send(T&& value,
                                  Deadline deadline = Deadline::Infinite()) {
    if (!MayWait()) [[unlikely]]
      return RefusedError("Channel::Send");
    std::optional<Waiting> waiting;
    const ChannelResult result = SendOrQueue(value, &waiting);
    if (result == ChannelResult::kOk) [[likely]]
      return absl::OkStatus();
    return result == ChannelResult::kClosed
               ? ClosedError("Channel::Send")
               : Await(*waiting, deadline, "Channel::Send");
  }
  [[nodiscard]] absl::Status Send(
      const T& value, Deadline deadline = Deadline::Infinite()) requires
      std::is_copy_constructible_v<T> {
    return Send(T(value), deadline);
  }

  // Receives the next value. IsClosed() if the channel is closed and empty.
  [[nodiscard]] absl::StatusOr<T> Receive(
      Deadline deadline = Deadline::Infinite()) {
    if (!MayWait()) [[unlikely]]
      return RefusedError("Channel::Receive");
    Room room;
    std::optional<Waiting> waiting;
    const ChannelResult result = ReceiveOrQueue(room.address(), &waiting);
    if (result != ChannelResult::kOk) [[unlikely]] {
      absl::Status status = result == ChannelResult::kClosed
                                ? ClosedError("Channel::Receive")
                                : Await(*waiting, deadline, "Channel::Receive");
      if (!status.ok()) return status;
    }
    return room.Take();
  }

  // The same without waiting. Any state and any place, operations at a
  // safepoint included.
  [[nodiscard]] ChannelResult TrySend(T&& value) {
    return SendOrQueue(value, nullptr);
  }
  [[nodiscard]] ChannelResult TrySend(
      const T& value) requires std::is_copy_constructible_v<T> {
    return TrySend(T(value));
  }
  // `into` is set if and only if the result is kOk.
  [[nodiscard]] ChannelResult TryReceive(std::optional<T>& into) {
    into.reset();
    Room room;
    const ChannelResult result = ReceiveOrQueue(room.address(), nullptr);
    if (result == ChannelResult::kOk) into.emplace(room.Take());
    return result;
  }

  // No value can be sent any more; those that are in the channel can still be
  // received. Ends the waits: of senders, whose values are not sent, and of
  // receivers. False if it is closed already. Any state; never waits.
  using ChannelCore::Close;

  // A glance: others may be at it. Any state.
  using ChannelCore::capacity;
  using ChannelCore::closed;
  using ChannelCore::size;

  // For a collector: calls `visit` for each value that is on its way: first
  // those in the channel, in order, then those that blocked senders hold (they
  // lie on the senders' stacks, which would also show them to a scan of
  // stacks). `visit` may change them, since objects move; it runs under the
  // channel's lock, and may neither wait nor use the channel. A value that has
  // been handed to a receiver who has not returned yet is in neither place: it
  // lies in his frame, in memory that a scan of stacks finds.
  // At a safepoint: while the world runs the values do not stand still.
  void ForEachValue(absl::FunctionRef<void(T&)> visit) {
    const LeafLock lock(lock_);
    for (size_t i = 0; i < count_; ++i) visit(values_[IndexOf(i)]);
    for (ChannelNode* node = senders_.front(); node != nullptr;
         node = ChannelQueue::Next(*node)) {
      visit(*static_cast<T*>(node->value));
    }
  }

 private:
  template <typename>
  friend class SendCase;
  template <typename>
  friend class ReceiveCase;

  // Room for a value that somebody else makes.
  class Room {
   public:
    Room() {}
    void* address() { return &memory_; }
    T Take() {
      T* const value = std::launder(reinterpret_cast<T*>(&memory_));
      T taken(std::move(*value));
      value->~T();
      return taken;
    }

   private:
    alignas(T) unsigned char memory_[sizeof(T)];
  };

  size_t IndexOf(size_t nth) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    const size_t index = first_ + nth;
    return index >= capacity_ ? index - capacity_ : index;
  }

  void PutLast(T& value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    new (values_ + IndexOf(count_)) T(std::move(value));
    ++count_;
  }

  // Without the lock, since nobody else is there: what the values own may be
  // channels.
  void DestroyValues() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    while (count_ > 0) TakeFirst()->~T();
  }

  // To be destroyed by the caller.
  T* TakeFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    T* const value = values_ + first_;
    first_ = IndexOf(1);
    --count_;
    return value;
  }

  // `own`: of a select whose case this is.
  ChannelResult TrySendLocked(T& value, WakeUp& wake_up,
                              const Selection* own = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    if (closed_) return ChannelResult::kClosed;
    if (ChannelNode* receiver = ClaimFirst(receivers_, own)) {
      new (receiver->value) T(std::move(value));
      wake_up = receiver->Complete();
      return ChannelResult::kOk;
    }
    if (count_ == capacity_) return ChannelResult::kWouldWait;
    PutLast(value);
    return ChannelResult::kOk;
  }

  ChannelResult TryReceiveLocked(void* room, WakeUp& wake_up,
                                 const Selection* own = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    if (count_ > 0) {
      T* const value = TakeFirst();
      new (room) T(std::move(*value));
      value->~T();
      if (ChannelNode* sender = ClaimFirst(senders_, own)) {
        PutLast(*static_cast<T*>(sender->value));
        wake_up = sender->Complete();
      }
      return ChannelResult::kOk;
    }
    if (ChannelNode* sender = ClaimFirst(senders_, own)) {
      new (room) T(std::move(*static_cast<T*>(sender->value)));
      wake_up = sender->Complete();
      return ChannelResult::kOk;
    }
    return closed_ ? ChannelResult::kClosed : ChannelResult::kWouldWait;
  }

  // With `waiting`: makes it, and queues it, if it has to wait.
  ChannelResult SendOrQueue(T& value, std::optional<Waiting>* waiting) {
    WakeUp wake_up;
    ChannelResult result;
    {
      const LeafLock lock(lock_);
      result = TrySendLocked(value, wake_up);
      if (result == ChannelResult::kWouldWait && waiting != nullptr) {
        senders_.PushBack(waiting->emplace(&value, this, senders_, lock_).node);
      }
    }
    wake_up.Wake();
    return result;
  }

  ChannelResult ReceiveOrQueue(void* room, std::optional<Waiting>* waiting) {
    WakeUp wake_up;
    ChannelResult result;
    {
      const LeafLock lock(lock_);
      result = TryReceiveLocked(room, wake_up);
      if (result == ChannelResult::kWouldWait && waiting != nullptr) {
        receivers_.PushBack(
            waiting->emplace(room, this, receivers_, lock_).node);
      }
    }
    wake_up.Wake();
    return result;
  }

  T* const values_;  // the ring's
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SYNC_CHANNEL_H_
