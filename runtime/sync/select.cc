#include "runtime/sync/select.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/intrusive_list.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/sync/channel_core.h"
#include "runtime/sync/waiter.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/wait_check.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {
namespace {

// A number below `end`, for a fair choice and not for secrets (Marsaglia's
// xorshift).
size_t RandomBelow(size_t end, uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return static_cast<size_t>(((state >> 32) * end) >> 32);
}

uint64_t Seed() {
  return static_cast<uint64_t>(MonotonicNanos()) *
             uint64_t{0x9e3779b97f4a7c15} |
         1;
}

}  // namespace

// One call of Select. Takes one channel's lock at a time.
class SelectRun {
 public:
  SelectRun(absl::Span<SelectCase* const> cases, Thread* current)
      : cases_(cases), waiter_(current) {
    uint64_t unattached = 0;
    uint64_t& random =
        current != nullptr ? current->record().random : unattached;
    if (random == 0) random = Seed();
    // A random permutation, kept in the cases.
    for (size_t i = 0; i < cases_.size(); ++i) {
      const size_t j = RandomBelow(i + 1, random);
      cases_[i]->turn_ = cases_[j]->turn_;
      cases_[j]->turn_ = static_cast<uint32_t>(i);
    }
  }

  // Does one that is ready, if any.
  std::optional<size_t> TryAll() {
    for (size_t i = 0; i < cases_.size(); ++i) {
      if (TryOne(Nth(i), /*queue_up=*/false)) return cases_[i]->turn_;
    }
    return std::nullopt;
  }

  // Does one that is ready, or is in all queues and may be claimed; if it was
  // missed, neither.
  enum class Armed { kDone, kArmed, kMissed };
  Armed Arm(size_t& done) {
    selection_.BeginArming();
    for (queued_ = 0; queued_ < cases_.size(); ++queued_) {
      const size_t i = queued_;
      if (!TryOne(Nth(i), /*queue_up=*/true)) continue;
      // Nobody could claim it meanwhile. (This channel may be gone already.)
      LeaveQueues();
      done = cases_[i]->turn_;
      return Armed::kDone;
    }
    if (selection_.EndArming()) return Armed::kArmed;
    LeaveQueues();
    return Armed::kMissed;
  }

  absl::StatusOr<size_t> Await(Deadline deadline) {
    WaitResult result =
        waiter_.Wait(WaitingFor(WaitKind::kSelect), {.deadline = deadline},
                     [this] { GetBehind(); });
    if (result != WaitResult::kDone && !selection_.Abort()) {
      // Claimed: whoever did that has one of the locks, or has ended the wait
      // together with others, and comes to this one soon.
      GetBehind();
      if (!waiter_.done()) {
        waiter_.Wait(WaitingFor(WaitKind::kSelect), {.interruptible = false},
                     [this] { GetBehind(); });
      }
      result = WaitResult::kDone;
    }
    LeaveQueues();
    if (result != WaitResult::kDone) {
      if (result == WaitResult::kInterrupted) waiter_.TakeInterrupt();
      return WaitError(result, "Select");
    }
    STILLPOINT_CHECK(waiter_.done(), "a select is claimed by nobody");
    for (size_t i = 0; i < cases_.size(); ++i) {
      SelectCase& chosen = *cases_[i];
      if (&chosen.node_ != chosen_) continue;
      chosen.closed_ = chosen_->closed;
      if (!chosen.closed_) chosen.Finish();
      return i;
    }
    return absl::InternalError("the chosen case is none of the select's");
  }

 private:
  SelectCase& Nth(size_t i) { return *cases_[cases_[i]->turn_]; }

  // Whether it is done.
  [[gnu::noinline]] bool TryOne(SelectCase& one,
                                bool queue_up) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (one.channel_ == nullptr) return false;
    WakeUp wake_up;
    ChannelResult result;
    {
      const LeafLock lock(*one.lock_);
      result = one.Try(wake_up, &selection_);
      if (result == ChannelResult::kWouldWait && queue_up) {
        one.node_.waiter = &waiter_;
        one.node_.selection = &selection_;
        one.node_.chosen = &chosen_;
        one.node_.closed = false;
        one.node_.ended = false;
        one.queue().PushBack(one.node_);
      }
    }
    wake_up.Wake();
    if (result == ChannelResult::kWouldWait) return false;
    one.closed_ = result == ChannelResult::kClosed;
    if (!one.closed_) one.Finish();
    return true;
  }

  // Leaves the queues in which it may be still: all but the chosen one's, whose
  // channel may be gone.
  [[gnu::noinline]] void LeaveQueues() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (size_t i = 0; i < queued_; ++i) {
      SelectCase& one = Nth(i);
      if (one.channel_ == nullptr || &one.node_ == chosen_) continue;
      const LeafLock lock(*one.lock_);
      if (!IntrusiveList<ChannelNode>::IsLinked(one.node_)) continue;
      one.queue().Remove(one.node_);
    }
  }

  // Whoever was completing this select when it was called is through.
  [[gnu::noinline]] void GetBehind() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (SelectCase* one : cases_) {
      if (one->channel_ != nullptr) const LeafLock lock(*one->lock_);
    }
  }

  const absl::Span<SelectCase* const> cases_;
  Waiter waiter_;
  Selection selection_;
  ChannelNode* chosen_ = nullptr;
  size_t queued_ = 0;  // how many, of the permutation
};

std::optional<size_t> TrySelect(absl::Span<SelectCase* const> cases) {
  return SelectRun(cases, Thread::Current()).TryAll();
}

absl::StatusOr<size_t> Select(absl::Span<SelectCase* const> cases,
                              Deadline deadline) {
  if (absl::Status allowed = CheckMayWait("Select"); !allowed.ok()) {
    return allowed;
  }
  Thread* const current = Thread::Current();
  SelectRun run(cases, current);
  while (true) {
    if (std::optional<size_t> done = run.TryAll()) return *done;
    size_t done = 0;
    switch (run.Arm(done)) {
      case SelectRun::Armed::kDone:
        return done;
      case SelectRun::Armed::kArmed:
        return run.Await(deadline);
      case SelectRun::Armed::kMissed:
        break;
    }
  }
}

}  // namespace stillpoint
