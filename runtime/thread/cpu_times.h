// CPU time of threads and of the process. docs/cpu_time.md says what each
// number means, how exact it is, and what it costs.

#ifndef STILLPOINT_RUNTIME_THREAD_CPU_TIMES_H_
#define STILLPOINT_RUNTIME_THREAD_CPU_TIMES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/os/cpu_clock.h"
#include "runtime/os/fast_cpu_clock.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"

namespace stillpoint {

// A pair of readings, in nanoseconds. A plain value.
struct CpuTimes {
  // The consistent pair: what to show and to compute with. Neither falls from
  // one reading of a thread to the next, and user <= total.
  int64_t total = 0;  // in user mode and in the kernel
  int64_t user = 0;   // in user mode

  // The same as the kernel says. Its total is exact. Its user time is counted
  // by the timer tick on many kernels: it grows by a whole tick (4 ms at 250
  // Hz) whenever a tick finds the thread in user mode, is 0 for threads that
  // sleep whenever one comes, and can exceed the total.
  int64_t raw_total = 0;
  int64_t raw_user = 0;

  // In the kernel; as exact as user. 0 for a green thread: all its time is
  // given as user time, since the kernel does not tell its carrier's apart.
  int64_t system() const { return total - user; }
};

struct ThreadCpuTimes : CpuTimes {
  // Since Start or AttachCurrentThread was called, on CLOCK_MONOTONIC; of a
  // thread that has ended: until then.
  int64_t elapsed = 0;
  // The thread has left the runtime: these are its last values, which stay so.
  bool is_final = false;
};

// --- The calling thread. Attached or not, in any state. ---

// Total CPU time in nanoseconds since the OS thread began, without a system
// call where that is possible (Runtime::cpu_clock_description() says whether):
// some 15 ns then, else what clock_gettime costs. Never less than an earlier
// answer since the thread was attached. Its error is bounded by
// Options::cpu_clock_max_age, and is reached only where the machine takes
// processor time without the kernel's knowledge (a hypervisor, an interrupt).
// May be called in a signal handler. Dies with a sentence if a seccomp filter
// refuses clock_gettime(2).
[[gnu::always_inline]] inline int64_t CurrentThreadCpuNanos() {
  Thread* current = Thread::Current();
  if (current == nullptr) [[unlikely]]
    return CurrentThreadKernelCpuNanos();
  return current->cpu_clock().Read() + current->cpu_offset();
}

// One of the kernel's clocks, raw: one system call, which looks no thread up.
// Error: Unavailable if a seccomp filter refuses it.
absl::StatusOr<int64_t> CurrentThreadCpuNanos(CpuClock clock);

// Both: two system calls; in a green thread, whose user time nobody counts,
// none (docs/cpu_time.md). `elapsed` is 0 for a thread that is not attached.
// Error: as above.
absl::StatusOr<ThreadCpuTimes> CurrentThreadCpuTimes();

// What the calling thread's clock has done since it was attached; zeros if it
// is not, or if the kernel is asked each time.
FastCpuClockStats CurrentThreadCpuClockStats();

// --- The process: all its threads, those that have ended included. ---

// As for the calling thread.
absl::StatusOr<int64_t> ProcessCpuNanos(CpuClock clock);
absl::StatusOr<CpuTimes> ProcessCpuTimes();

// --- For the runtime's own floors. Threads of the runtime, by other threads:
// ThreadHandle, PinnedThread and StoppedThread. ---

// The thread of that generation in a slot that cannot be given to another one
// meanwhile: pinned, or in a stop. Errors: NotFound if the thread has left no
// last value; Unavailable if it has ended without leaving the runtime, or as
// above.
absl::StatusOr<ThreadCpuTimes> ReadCpuTimes(Thread& thread,
                                            uint64_t generation);
absl::StatusOr<int64_t> ReadCpuNanos(Thread& thread, uint64_t generation,
                                     CpuClock clock);

// The last values of a thread that has ended; no pin is needed. Error:
// NotFound if the slot has another thread by now, or as above.
absl::StatusOr<ThreadCpuTimes> ReadFinalCpuTimes(const Thread& thread,
                                                 uint64_t generation);

// A new thread takes the slot: nobody else may look yet.
void BeginCpuAccount(Thread& thread);

// The owner, native, just before its generation ends: leaves its last values.
void EndCpuAccount(Thread& thread);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_CPU_TIMES_H_
