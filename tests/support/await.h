// Waiting for a condition.

#ifndef STILLPOINT_TESTS_SUPPORT_AWAIT_H_
#define STILLPOINT_TESTS_SUPPORT_AWAIT_H_

#include <time.h>

namespace stillpoint::testing {

// Returns once `condition()` is true. A condition that never becomes true hangs
// the test: the test runner's limit is the detector, and its report shows the
// stacks. The pauses only spare the processor; nothing depends on their length.
template <typename Condition>
void Await(Condition condition) {
  while (!condition()) {
    const timespec pause = {0, 50'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace stillpoint::testing

#endif  // STILLPOINT_TESTS_SUPPORT_AWAIT_H_
