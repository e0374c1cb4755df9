#include "runtime/green/helper_pool.h"

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"
#include "runtime/thread/wait_word.h"

namespace stillpoint {
namespace {

// How long a helper waits for its next job before it ends: longer than what
// calls that block now and then pause.
constexpr int64_t kIdleNanos = 5'000'000'000;

}  // namespace

// Of one helper.
struct HelperPool::Share {
  std::shared_ptr<const void> keeps;
  std::shared_ptr<HelperPool> pool;
};

bool HelperPool::Submit(Job& job) {
  bool enough;
  {
    RankedMutexLock lock(lock_);
    job.next = nullptr;
    (last_ != nullptr ? last_->next : first_) = &job;
    last_ = &job;
    ++queued_;
    enough = idle_ >= queued_;
  }
  // seq_cst (M88) against a helper that is about to sleep.
  submitted_.fetch_add(1);
  if (enough) {
    FutexWake(submitted_, 1);
    return true;
  }
  // relaxed (M88): a bound.
  if (helpers_.load(std::memory_order_relaxed) < kMaxHelpers) {
    helpers_.fetch_add(1, std::memory_order_relaxed);
    auto share =
        std::make_unique<Share>(Share{keeps_.lock(), shared_from_this()});
    OsThreadOptions options;
    options.block_signals = true;
    if (StartOsThread(options, &ThreadMain, share.get()).ok()) {
      share.release();
      return true;
    }
    helpers_.fetch_sub(1, std::memory_order_relaxed);
  }
  // One of those that are busy will take it, if there are any; if not, or if
  // they block for long, the caller is better off doing it himself.
  RankedMutexLock lock(lock_);
  for (Job** link = &first_; *link != nullptr; link = &(*link)->next) {
    if (*link != &job) continue;
    *link = job.next;
    --queued_;
    last_ = nullptr;
    for (Job* rest = first_; rest != nullptr; rest = rest->next) last_ = rest;
    return false;
  }
  return true;  // somebody has taken it meanwhile
}

void* HelperPool::ThreadMain(void* argument) {
  const std::unique_ptr<Share> share(static_cast<Share*>(argument));
  SetCurrentOsThreadName(absl::StrCat(share->pool->name_, "-helper"));
  share->pool->Run();
  return nullptr;
}

void HelperPool::Run() {
  while (Job* job = NextJob()) {
    job->call();
    WaitWord* const waiter = job->waiter;
    // release (M88): with it what the call has done. The job may be gone
    // afterwards; the word, which lies in a record, is not.
    job->done.store(true, std::memory_order_release);
    waiter->Set(WaitWord::kEvent);
  }
  // relaxed (M88): a number.
  helpers_.fetch_sub(1, std::memory_order_relaxed);
}

HelperPool::Job* HelperPool::NextJob() {
  const Deadline give_up =
      Deadline::AtMonotonicNanos(MonotonicNanos() + kIdleNanos);
  bool counted = false;
  while (true) {
    const uint32_t seen = submitted_.load();
    {
      RankedMutexLock lock(lock_);
      if (first_ != nullptr || give_up.passed()) {
        if (counted) --idle_;
        Job* const job = first_;
        if (job == nullptr) return nullptr;
        first_ = job->next;
        if (first_ == nullptr) last_ = nullptr;
        --queued_;
        return job;
      }
      if (!counted) ++idle_;
      counted = true;
    }
    FutexWait(submitted_, seen, give_up);
  }
}

void HelperPool::ResetInForkedChild() { lock_.ResetInForkedChild(); }

}  // namespace stillpoint
