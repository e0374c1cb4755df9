// Frames that step over a guard, unless the compiler probes them.

#ifndef STILLPOINT_TESTS_GREEN_PROBED_FRAMES_H_
#define STILLPOINT_TESTS_GREEN_PROBED_FRAMES_H_

namespace stillpoint::testing {

// Needs 16 MiB of stack, and writes to the lowest of them.
void TouchLowEndOfLargeFrame();

}  // namespace stillpoint::testing

#endif  // STILLPOINT_TESTS_GREEN_PROBED_FRAMES_H_
