// Giving others a turn.

#ifndef STILLPOINT_RUNTIME_GREEN_YIELD_H_
#define STILLPOINT_RUNTIME_GREEN_YIELD_H_

namespace stillpoint {

// Lets other threads run that are ready: in a green thread those of its carrier
// and what no carrier has begun yet, each of which gets a turn before this one
// gets its next; returns at once if there are none. In any other thread
// sched_yield(2). Managed or Native; a Managed caller may be stopped meanwhile,
// as at a poll. Not inside a NoSafepointScope, an operation or a handshake, nor
// with a ranked lock held (it dies with a sentence).
void Yield();

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_YIELD_H_
