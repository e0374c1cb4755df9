// Running another program and waiting for its end.

#ifndef STILLPOINT_TESTS_LIFECYCLE_CHILD_PROCESS_H_
#define STILLPOINT_TESTS_LIFECYCLE_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace stillpoint::testing {

// How a process ended: its exit status, or the signal that killed it.
struct Ending {
  int exit_status = -1;
  int signal = 0;
};

// Starts `path` with `arguments` and waits for its end. A child that hangs
// hangs the test.
Ending RunProgram(const std::string& path,
                  const std::vector<std::string>& arguments);

// Waits for a child that was forked.
Ending AwaitChild(pid_t child);

}  // namespace stillpoint::testing

#endif  // STILLPOINT_TESTS_LIFECYCLE_CHILD_PROCESS_H_
