// Park: wait for a permit.

#ifndef STILLPOINT_RUNTIME_THREAD_PARK_H_
#define STILLPOINT_RUNTIME_THREAD_PARK_H_

#include "absl/status/status.h"
#include "runtime/base/clock.h"

namespace stillpoint {

// Waits until ThreadHandle::Unpark has given the calling thread a permit, and
// takes it; at once if one is there already. Never returns early, signals
// included. A Managed caller is Blocked meanwhile and may wait for a stop on
// its way back.
// Errors: Cancelled ("Interrupted …") when interrupted, which takes the
// interrupt and leaves a permit alone; DeadlineExceeded; FailedPrecondition on
// an unattached thread, from a VM operation, with a ranked lock held or inside
// a NoSafepointScope.
absl::Status Park(Deadline deadline = Deadline::Infinite());

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_PARK_H_
