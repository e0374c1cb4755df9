// Looking at all threads of a runtime without a lock and without a stop.

#ifndef STILLPOINT_RUNTIME_THREAD_THREAD_SNAPSHOT_H_
#define STILLPOINT_RUNTIME_THREAD_THREAD_SNAPSHOT_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/thread_state.h"
#include "runtime/thread/cpu_times.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_handle.h"

namespace stillpoint {

// One thread of a snapshot: it may end meanwhile, but its name and id stay
// readable, and the slot is not given to another thread.
class PinnedThread {
 public:
  PinnedThread(Thread& thread, uint64_t generation)
      : thread_(&thread), generation_(generation) {}

  std::string_view name() const { return thread_->name(); }
  uint64_t id() const { return thread_->id(); }
  pid_t tid() const { return thread_->tid(); }
  // At this moment; Terminated if it has ended since the snapshot.
  ThreadState state() const { return thread_->state(); }

  // Its CPU and elapsed time, as ThreadHandle::GetCpuTimes; since the slot is
  // pinned, those of a thread that ends meanwhile stay readable. NotFound only
  // for a thread that never ran.
  absl::StatusOr<ThreadCpuTimes> GetCpuTimes() const {
    return ReadCpuTimes(*thread_, generation_);
  }

  Thread& thread() const { return *thread_; }
  uint64_t generation() const { return generation_; }

 private:
  Thread* thread_;
  uint64_t generation_;
};

// The members of a runtime, pinned. Holds no lock: threads start and end while
// it is looked at. Keep it for a short time, since the slots of threads that
// end are not reused before it goes. Move-only; any one thread at a time.
class ThreadSnapshot {
 public:
  // Never waits; any thread, any state. `consistent` says whether it shows the
  // membership of one instant: always, unless a thread came or went during each
  // of a few attempts. Then every thread that lived all through the call is in
  // it, and those that started or ended during it may be.
  static ThreadSnapshot Take(std::shared_ptr<Registry> registry);

  ThreadSnapshot(ThreadSnapshot&&) = default;
  ThreadSnapshot& operator=(ThreadSnapshot&& other);
  ~ThreadSnapshot() { Clear(); }

  bool consistent() const { return consistent_; }
  size_t size() const { return threads_.size(); }
  std::vector<PinnedThread>::const_iterator begin() const {
    return threads_.begin();
  }
  std::vector<PinnedThread>::const_iterator end() const {
    return threads_.end();
  }

  // A handle that outlives the snapshot.
  ThreadHandle HandleOf(const PinnedThread& thread) const {
    return ThreadHandle(registry_, thread.thread(), thread.generation());
  }

 private:
  explicit ThreadSnapshot(std::shared_ptr<Registry> registry)
      : registry_(std::move(registry)) {}
  void Collect();
  void Clear();

  std::shared_ptr<Registry> registry_;
  std::vector<PinnedThread> threads_;
  bool consistent_ = false;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_THREAD_SNAPSHOT_H_
