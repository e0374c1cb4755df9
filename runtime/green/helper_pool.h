// The OS threads on which green threads' blocking calls run.

#ifndef STILLPOINT_RUNTIME_GREEN_HELPER_POOL_H_
#define STILLPOINT_RUNTIME_GREEN_HELPER_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/thread/wait_word.h"

namespace stillpoint {

// One per scheduler. A helper that has nothing to do for a while ends.
class HelperPool : public std::enable_shared_from_this<HelperPool> {
 public:
  // Helpers at once, at most: as many blocking calls at the same time.
  static constexpr uint32_t kMaxHelpers = 1024;

  // `keeps` is what a helper keeps, since it looks at it last: it has the wait
  // words of all jobs, and their carriers. It lives when Submit is called.
  HelperPool(std::string name, std::weak_ptr<const void> keeps)
      : name_(std::move(name)), keeps_(std::move(keeps)) {}
  HelperPool(const HelperPool&) = delete;
  HelperPool& operator=(const HelperPool&) = delete;

  // Has `call` run on a helper; then `done` is true, and kEvent is given to
  // `waiter`. False, with nothing done, if there is no
  // helper to be had. Blocks for the creation of an OS thread at most.
  struct Job {
    absl::FunctionRef<void()> call;
    WaitWord* waiter;
    std::atomic<bool> done{false};
    Job* next = nullptr;
  };
  bool Submit(Job& job);

  // Helpers now. relaxed (M88): a number.
  uint32_t helpers() const { return helpers_.load(std::memory_order_relaxed); }

  // In the child of a fork: there are no helpers.
  void ResetInForkedChild();

 private:
  struct Share;

  static void* ThreadMain(void* argument);
  void Run();
  Job* NextJob();

  const std::string name_;
  const std::weak_ptr<const void> keeps_;
  RankedMutex lock_{kHelperPoolLockRank};
  Job* first_ ABSL_GUARDED_BY(lock_) = nullptr;
  Job* last_ ABSL_GUARDED_BY(lock_) = nullptr;
  uint32_t queued_ ABSL_GUARDED_BY(lock_) = 0;
  uint32_t idle_ ABSL_GUARDED_BY(lock_) = 0;
  std::atomic<uint32_t> helpers_{0};
  // Counts jobs. A futex word: idle helpers sleep on it.
  std::atomic<uint32_t> submitted_{0};
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_HELPER_POOL_H_
