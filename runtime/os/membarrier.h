// membarrier(2): a memory barrier on every running thread of this process, paid
// by the caller alone.

#ifndef STILLPOINT_RUNTIME_OS_MEMBARRIER_H_
#define STILLPOINT_RUNTIME_OS_MEMBARRIER_H_

#include <cstdint>

namespace stillpoint {

// Asks the kernel for MEMBARRIER_CMD_PRIVATE_EXPEDITED. False where the kernel
// lacks it or refuses it (old kernel, seccomp). Lasts for the process and
// survives fork. Any thread, any state; idempotent.
bool RegisterMembarrier();

// A full barrier on each other running thread of the process at some moment
// within the call, and on the caller. RegisterMembarrier() must have succeeded.
// A failure afterwards (seccomp after start) cannot be repaired, since every
// mutator relies on it: it is fatal, with a sentence.
void Membarrier();

// Makes every other running thread of the process execute a serialising
// instruction before it returns to user code, so that none goes on with code
// that was changed meanwhile (MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, Linux
// 4.16). Registers the process for it at the first call. False where the kernel
// refuses.
bool SerializeInstructionsEverywhere();

// The median cost of Membarrier() in nanoseconds with a peer thread running on
// another core, each after a pause, as a stop meets it: a few µs on bare metal,
// tens of µs under some hypervisors, about 1 µs alone. Negative if no peer
// could be started, or if it hardly ran on a loaded machine. Takes a few
// milliseconds, at most some 20.
int64_t MeasureMembarrierNanos();

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_MEMBARRIER_H_
