// A reference to a thread of a runtime, for other threads.

#ifndef STILLPOINT_RUNTIME_THREAD_THREAD_HANDLE_H_
#define STILLPOINT_RUNTIME_THREAD_THREAD_HANDLE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/os/cpu_clock.h"
#include "runtime/thread/cpu_times.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/thread.h"

namespace stillpoint {

// Refers to one thread for ever: to it while it lives, to "gone" afterwards,
// never to another thread. Copyable; may outlive the thread and the Runtime.
// Dropping the last handle detaches nothing and stops nothing: a thread that
// nobody joins simply ends. Calls are thread-safe on distinct handles.
class ThreadHandle {
 public:
  // Refers to nothing: every call answers as for a thread that is gone.
  ThreadHandle() = default;

  // Internal: refers to the thread that lives in the slot now.
  ThreadHandle(std::shared_ptr<Registry> registry, Thread& thread,
               uint64_t generation)
      : registry_(std::move(registry)),
        thread_(&thread),
        generation_(generation) {}

  // Whether the thread has not yet left the runtime.
  bool alive() const;

  // Waits until the thread has left the runtime; all that it did is then
  // visible. Any thread may join, several may join one thread. A Managed caller
  // is Blocked meanwhile and may wait for a stop on its way back.
  // Errors: Cancelled ("Interrupted …") when the caller is interrupted, which
  // takes its interrupt; DeadlineExceeded; FailedPrecondition for joining
  // oneself, from a VM operation, with a ranked lock held or inside a
  // NoSafepointScope.
  absl::Status Join(Deadline deadline = Deadline::Infinite()) const;

  // Sets the thread's interrupt flag and ends the wait of ours that it is in,
  // or else the next one. False if it is gone. Never waits; any state.
  bool Interrupt() const;

  // The request to end: sets the interrupt flag for good, so that each of the
  // thread's interruptible waits, the one that it is in and all later ones,
  // ends at once with the status of an interrupt; Thread::cancelled() tells
  // the two apart. An interrupt is taken by the wait that it ends, and what it
  // means is the embedder's; a cancellation cannot be taken, missed or undone.
  // Nothing is unwound or killed: the thread ends when its body returns. False
  // if it is gone. Never waits; any state.
  bool Cancel() const;

  // Gives the thread a permit for Park (thread/park.h); permits do not add up.
  // False if it is gone. Never waits; any state.
  bool Unpark() const;

  // The thread's CPU and elapsed time: of the OS thread since it began, so an
  // attached thread's counts from before it was attached. Once it has left the
  // runtime: its last values, until another thread gets its slot. Two system
  // calls; never waits; any state. Answers are zeros as long as the OS thread
  // has not reported.
  // Errors: NotFound for a thread that is gone with its values, saying what to
  // do instead, and for a handle that refers to nothing; Unavailable if the OS
  // thread has ended without leaving the runtime, or if a seccomp filter
  // refuses clock_gettime(2).
  absl::StatusOr<ThreadCpuTimes> GetCpuTimes() const;

  // One of the kernel's clocks of the thread, in nanoseconds, raw: one system
  // call. Otherwise the same.
  absl::StatusOr<int64_t> CpuNanos(CpuClock clock) const;

  // The slot and the registry, for the runtime's own floors.
  Thread* slot() const { return thread_; }
  uint64_t generation() const { return generation_; }
  const std::shared_ptr<Registry>& registry() const { return registry_; }

  friend bool operator==(const ThreadHandle& a, const ThreadHandle& b) {
    return a.thread_ == b.thread_ && a.generation_ == b.generation_;
  }

 private:
  bool SetBits(uint32_t bits) const;

  std::shared_ptr<Registry> registry_;
  Thread* thread_ = nullptr;
  uint64_t generation_ = 0;
};

// A handle to the calling thread, to be given to others; refers to nothing if
// it is not attached.
ThreadHandle CurrentThreadHandle();

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_THREAD_HANDLE_H_
