#include "runtime/thread/suspension.h"

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/wait_word.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {
namespace {

// Both under Suspend_lock.

uint32_t CountOf(const Thread& target) {
  // relaxed (M62): written under the lock that the caller holds.
  return target.record().suspend_count.load(std::memory_order_relaxed);
}

WakeUp Lower(Thread& target, uint32_t to) {
  ThreadRecord& record = target.record();
  // release (M62): pairs with IsSuspended, for what the resumer has written.
  record.suspend_count.store(to, std::memory_order_release);
  return to == 0 ? record.wait.SetQuietly(WaitWord::kResume) : WakeUp();
}

}  // namespace

void AwaitResume(Thread& self) {
  WaitWord& word = self.record().wait;
  // Perhaps on the way back from another wait.
  const WaitingFor before = self.record().waiting_for.Get();
  self.record().waiting_for.Set(WaitingFor(WaitKind::kResume));
  while (IsSuspended(self)) {
    word.Wait(WaitWord::kResume, Deadline::Infinite());
    // It may be one of before: the count is looked at again.
    word.Take(WaitWord::kResume);
  }
  self.record().waiting_for.Set(before);
}

Suspensions::Attempt Suspensions::Try(const Thread* caller, Thread& target) {
  {
    RankedMutexLock lock(lock_);
    if (closed_) return Attempt::kClosed;
    if (caller != nullptr && CountOf(*caller) != 0) {
      return Attempt::kCallerSuspended;
    }
    // release (M62): before the arming that shows it.
    target.record().suspend_count.fetch_add(1, std::memory_order_release);
  }
  // release (M60, M62): who finds the bit in its exchange finds the count.
  target.poll_word().fetch_or(kPollHandshake, std::memory_order_release);
  return Attempt::kCounted;
}

bool Suspensions::Resume(Thread& target) {
  WakeUp owed;
  {
    RankedMutexLock lock(lock_);
    const uint32_t count = CountOf(target);
    if (count == 0) return false;
    owed = Lower(target, count - 1);
  }
  owed.Wake();
  return true;
}

void Suspensions::Lift(Thread& target) {
  WakeUp owed;
  {
    RankedMutexLock lock(lock_);
    if (CountOf(target) == 0) return;
    owed = Lower(target, 0);
  }
  owed.Wake();
}

void Suspensions::Close() {
  RankedMutexLock lock(lock_);
  closed_ = true;
}

}  // namespace stillpoint
