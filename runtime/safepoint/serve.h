// The slow path behind polls and behind entering Managed.

#ifndef STILLPOINT_RUNTIME_SAFEPOINT_SERVE_H_
#define STILLPOINT_RUNTIME_SAFEPOINT_SERVE_H_

#include "runtime/thread/thread.h"

namespace stillpoint {

// Caller: `thread` itself, in Blocked. Waits while a stop is on, disarms, looks
// at every cause again, runs the handshakes that were asked of it, waits while
// it is suspended, and returns in Managed. It is StopControl::serve_poll. On a
// runtime that has ended it never returns.
void ServePoll(Thread& thread);

// Enters Managed from a safe state like EnterManaged, the saved context being
// left alone if it has to step back. False, in Blocked, instead of parking on a
// runtime that has ended.
bool EnterManagedUnlessClosed(Thread& thread);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SAFEPOINT_SERVE_H_
