#include "runtime/thread/thread_handle.h"

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/os/cpu_clock.h"
#include "runtime/thread/cpu_times.h"
#include "runtime/thread/interrupt.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/wait_check.h"
#include "runtime/thread/wait_word.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {
namespace {

absl::Status RefersToNothingError() {
  return absl::NotFoundError(
      "this handle refers to no thread: take the one that Start or "
      "CurrentThreadHandle returns");
}

}  // namespace

bool ThreadHandle::alive() const {
  // acquire (M14): who sees the end sees all that the thread did.
  return thread_ != nullptr && thread_->record().generation.load(
                                   std::memory_order_acquire) == generation_;
}

absl::Status ThreadHandle::Join(Deadline deadline) const {
  if (absl::Status allowed = CheckMayWait("Join"); !allowed.ok()) {
    return allowed;
  }
  if (thread_ == nullptr) return absl::OkStatus();
  Thread* current = Thread::Current();
  if (current == thread_ && alive()) {
    return absl::FailedPreconditionError("a thread cannot join itself");
  }
  // An unattached thread has no word of its own, and cannot be interrupted.
  WaitWord own;
  Joiner joiner;
  joiner.wait = current != nullptr ? &current->record().wait : &own;

  const WaitScope waiting(current, WaitingFor(WaitKind::kThread, thread_));
  ThreadRecord& record = thread_->record();
  {
    RankedMutexLock lock(record.join_lock);
    // The generation ends under this lock, so a joiner is either in the list
    // by then or sees the end here, and with it all that belongs to the end.
    if (!alive()) return absl::OkStatus();
    record.joiners.PushBack(joiner);
  }
  uint32_t bits = 0;
  while (true) {
    bits = joiner.wait->Wait(WaitWord::kEvent | WaitWord::kInterrupt, deadline);
    joiner.wait->Take(WaitWord::kEvent);
    // acquire (M14): with it the end, and all that belongs to it.
    if (joiner.done.load(std::memory_order_acquire)) return absl::OkStatus();
    // The event comes before "done", and the lock is given up after both.
    RankedMutexLock lock(record.join_lock);
    // acquire (M14): as above.
    if (joiner.done.load(std::memory_order_acquire)) return absl::OkStatus();
    if (bits == WaitWord::kEvent) continue;  // left over from an earlier wait
    record.joiners.Remove(joiner);
    break;
  }
  if (bits == 0) {
    return absl::DeadlineExceededError("the thread has not ended in time");
  }
  joiner.wait->Take(WaitWord::kInterrupt);
  return InterruptedError("Join");
}

bool ThreadHandle::SetBits(uint32_t bits) const {
  if (thread_ == nullptr || !registry_->Pin(*thread_, generation_)) {
    return false;
  }
  thread_->record().wait.Set(bits);
  registry_->Unpin(*thread_);
  return true;
}

bool ThreadHandle::Interrupt() const { return SetBits(WaitWord::kInterrupt); }

bool ThreadHandle::Cancel() const {
  return SetBits(WaitWord::kCancel | WaitWord::kInterrupt);
}

bool ThreadHandle::Unpark() const { return SetBits(WaitWord::kPermit); }

absl::StatusOr<ThreadCpuTimes> ThreadHandle::GetCpuTimes() const {
  if (thread_ == nullptr) return RefersToNothingError();
  if (!registry_->Pin(*thread_, generation_)) {
    return ReadFinalCpuTimes(*thread_, generation_);
  }
  absl::StatusOr<ThreadCpuTimes> times = ReadCpuTimes(*thread_, generation_);
  registry_->Unpin(*thread_);
  return times;
}

absl::StatusOr<int64_t> ThreadHandle::CpuNanos(CpuClock clock) const {
  if (thread_ == nullptr) return RefersToNothingError();
  if (!registry_->Pin(*thread_, generation_)) {
    const absl::StatusOr<ThreadCpuTimes> last =
        ReadFinalCpuTimes(*thread_, generation_);
    if (!last.ok()) return last.status();
    return clock == CpuClock::kUser ? last->raw_user : last->raw_total;
  }
  absl::StatusOr<int64_t> nanos = ReadCpuNanos(*thread_, generation_, clock);
  registry_->Unpin(*thread_);
  return nanos;
}

ThreadHandle CurrentThreadHandle() {
  Thread* current = Thread::Current();
  if (current == nullptr) return ThreadHandle();
  const ThreadRecord& record = current->record();
  // relaxed (M14): constant while the calling thread lives.
  return ThreadHandle(record.keep_alive->shared_from_this(), *current,
                      record.generation.load(std::memory_order_relaxed));
}

}  // namespace stillpoint
