// The stopped world, as a VM operation sees it.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_WORLD_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_WORLD_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/thread_state.h"
#include "runtime/os/os_thread.h"
#include "runtime/thread/cpu_times.h"
#include "runtime/thread/slot_table.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_handle.h"
#include "runtime/thread/thread_local_slot.h"

namespace stillpoint {

// One thread of the stopped world. Valid during the operation only.
class StoppedThread {
 public:
  explicit StoppedThread(Thread& thread) : thread_(thread) {}

  std::string_view name() const { return thread_.name(); }
  uint64_t id() const { return thread_.id(); }
  // 0 while it is New.
  pid_t tid() const { return thread_.tid(); }
  // Native or green. What follows says nothing of which: a green thread that is
  // parked, or ready and not running, is Blocked (or Native, if it was that and
  // has yielded), and its carrier is not shown.
  ThreadKind kind() const { return thread_.kind(); }

  // Blocked: stopped at a poll, or waiting in the runtime. Native: running on,
  // outside managed data; it may change to Blocked meanwhile. (Should it try to
  // come in, a glance can see Managed for the instant before it steps back;
  // that is reported as Blocked.) Terminated: it began to exit after the scan,
  // and waits for the end of the stop.
  ThreadState state() const;

  // The whole stack, of the OS thread or of the green one; zeros while it is
  // New.
  StackBounds stack() const;

  // Where to scan: every root that the thread's frames hold lies in
  // [scan_begin(), stack().high) or in registers(). Published when it last left
  // Managed for native code or a wait, so this also holds for threads that are
  // there. 0 and empty for a thread without managed frames: it has not been in
  // Managed, or its outermost ManagedScope has ended.
  uintptr_t scan_begin() const;
  // The stack pointer at that moment.
  uintptr_t stack_pointer() const;
  // The callee-saved registers at that moment.
  absl::Span<const uintptr_t> registers() const;

  // The embedder's pointer, as Thread::local.
  void* local(ThreadLocalSlot slot) const { return thread_.local(slot); }

  // Its CPU and elapsed time, as ThreadHandle::GetCpuTimes: two system calls.
  // A thread in native code goes on using CPU time during the stop. Error:
  // Unavailable.
  absl::StatusOr<ThreadCpuTimes> GetCpuTimes() const;

  // A handle that may outlive the operation.
  ThreadHandle handle() const;

 private:
  Thread& thread_;
};

// What an operation gets. On the VM thread, during the stop, only.
class World {
 public:
  // Members of the runtime at the stop's scan, native and green. Constant
  // during the stop: threads that start meanwhile are not in it, threads that
  // end wait. Green ones are counted by looking at each.
  size_t thread_count() const;

  // Calls `visit` exactly once for each of them.
  void ForEachThread(absl::FunctionRef<void(const StoppedThread&)> visit) const;

  // For operations that have changed machine code: no thread goes on with stale
  // instructions after the stop, not even one that is in native code now and
  // comes back without a kernel entry. One system call, only on request. Error:
  // Unimplemented where the kernel lacks it (before Linux 4.16, or seccomp);
  // then have every thread execute a serialising instruction itself.
  absl::Status SerializeInstructions() const;

  // Whether the world is stopped; false only in an operation that asked for no
  // safepoint, where there are no threads to visit.
  bool stopped() const { return stopped_; }

 private:
  friend class StopProtocol;

  std::vector<Thread*> members_;            // native
  const SlotTable* green_slots_ = nullptr;  // of a stopped world
  bool stopped_ = false;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_WORLD_H_
