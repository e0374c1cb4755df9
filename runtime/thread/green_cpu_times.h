// CPU time of green threads: what their carriers' clock shows between mount and
// unmount. Internal; see cpu_times.h.

#ifndef STILLPOINT_RUNTIME_THREAD_GREEN_CPU_TIMES_H_
#define STILLPOINT_RUNTIME_THREAD_GREEN_CPU_TIMES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/os/cpu_clock.h"
#include "runtime/thread/cpu_times.h"
#include "runtime/thread/thread.h"

namespace stillpoint {

// The scheduling of one green thread. A plain value.
struct GreenCounts {
  uint64_t switches = 0;     // how often it was given a carrier
  int64_t queued_nanos = 0;  // ready, but waiting for its carrier
};

// A time for differences only, in the unit that StopControl::ticks_multiplier
// says.
uint64_t GreenTicks(const StopControl& control);

// A new thread takes the slot: nobody else may look yet.
void BeginGreenAccount(Thread& thread);

// The carrier, at mount and unmount: its clock shows `carrier_nanos`. `ticks`
// it was ready before it was mounted. Returns what the carrier's readings lack
// to the thread's CPU time (Thread::cpu_offset).
int64_t ChargeMount(Thread& thread, int64_t carrier_nanos,
                    uint64_t ticks_queued);
void ChargeUnmount(Thread& thread, int64_t carrier_nanos);

// The thread itself, unmounted for the last time, before its generation ends:
// GreenTicks() was `ticks`.
void EndGreenAccount(Thread& thread, uint64_t ticks);

// The calling thread, which is green.
ThreadCpuTimes CurrentGreenCpuTimes(Thread& current);

// As ReadCpuTimes and ReadFinalCpuTimes; also in one: of a live thread that is
// mounted, what its carrier has used meanwhile is asked of the kernel.
absl::StatusOr<ThreadCpuTimes> ReadGreenCpuTimes(const Thread& thread,
                                                 uint64_t generation);

// Of the thread that is in the slot, or was last.
GreenCounts ReadGreenCounts(const Thread& thread);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_GREEN_CPU_TIMES_H_
