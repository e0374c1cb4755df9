// Select: wait at several channels, and do what can be done first.

#ifndef STILLPOINT_RUNTIME_SYNC_SELECT_H_
#define STILLPOINT_RUNTIME_SYNC_SELECT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/clock.h"
#include "runtime/sync/channel.h"
#include "runtime/sync/channel_core.h"
#include "runtime/sync/waiter.h"

namespace stillpoint {

// One of the alternatives of a Select: SendCase or ReceiveCase. An object
// serves one Select at a time, and may be used again.
class SelectCase {
 public:
  SelectCase(const SelectCase&) = delete;
  SelectCase& operator=(const SelectCase&) = delete;

  // After the Select that chose it: whether the channel was closed, and nothing
  // was sent or received.
  bool closed() const { return closed_; }

 protected:
  explicit SelectCase(ChannelCore* channel)
      : channel_(channel),
        lock_(channel != nullptr ? &channel->lock_ : nullptr) {}
  ~SelectCase() = default;

 private:
  friend class SelectRun;
  template <typename>
  friend class SendCase;
  template <typename>
  friend class ReceiveCase;

  // Under the channel's lock.
  virtual ChannelResult Try(WakeUp& wake_up, const Selection* own) = 0;
  virtual ChannelQueue& queue() = 0;
  // It has been chosen, and has not found the channel closed.
  virtual void Finish() = 0;

  ChannelCore* const channel_;  // null: never ready
  RankedMutex* const lock_;     // the channel's, which outlives it
  ChannelNode node_;
  bool closed_ = false;
  uint32_t turn_ = 0;  // which case is tried in this one's place
};

// Sends `value` to the channel, moving from it if this case is chosen and not
// closed(). A null channel is never ready. All must outlive the case.
template <typename T>
class SendCase final : public SelectCase {
 public:
  SendCase(Channel<T>* channel, T& value)
      : SelectCase(channel), typed_(channel), value_(value) {
    node_.value = &value;
  }

 private:
  ChannelResult Try(WakeUp& wake_up, const Selection* own)
      ABSL_NO_THREAD_SAFETY_ANALYSIS override {
    return typed_->TrySendLocked(value_, wake_up, own);
  }
  ChannelQueue& queue() ABSL_NO_THREAD_SAFETY_ANALYSIS override {
    return typed_->senders_;
  }
  void Finish() override {}

  Channel<T>* const typed_;
  T& value_;
};

// Receives from the channel into `into`, which is set if this case is chosen
// and not closed(). A null channel is never ready. All must outlive the case.
template <typename T>
class ReceiveCase final : public SelectCase {
 public:
  ReceiveCase(Channel<T>* channel, std::optional<T>& into)
      : SelectCase(channel), typed_(channel), into_(into) {
    node_.value = room_.address();
  }

 private:
  ChannelResult Try(WakeUp& wake_up, const Selection* own)
      ABSL_NO_THREAD_SAFETY_ANALYSIS override {
    return typed_->TryReceiveLocked(room_.address(), wake_up, own);
  }
  ChannelQueue& queue() ABSL_NO_THREAD_SAFETY_ANALYSIS override {
    return typed_->receivers_;
  }
  void Finish() override { into_.emplace(room_.Take()); }

  Channel<T>* const typed_;
  std::optional<T>& into_;
  typename Channel<T>::Room room_;
};

// Waits until one of the cases can be done, does that one, and returns its
// index. Of several that are ready each is as likely as the others. A channel
// that is closed (and empty, for a receive) is ready: the case is closed().
// Takes no memory. Any number of cases; a channel may be in several.
// Errors: as Channel::Receive, except for IsClosed().
[[nodiscard]] absl::StatusOr<size_t> Select(
    absl::Span<SelectCase* const> cases,
    Deadline deadline = Deadline::Infinite());

// With a default: does one of the cases that are ready, if any. Nothing if
// none is. Never waits; any state and any place.
[[nodiscard]] std::optional<size_t> TrySelect(
    absl::Span<SelectCase* const> cases);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SYNC_SELECT_H_
