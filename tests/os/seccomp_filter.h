// Fault injection at the system call: the kernel itself refuses.

#ifndef STILLPOINT_TESTS_OS_SECCOMP_FILTER_H_
#define STILLPOINT_TESTS_OS_SECCOMP_FILTER_H_

#include <functional>
#include <initializer_list>

namespace stillpoint::testing {

struct DeniedCall {
  long number;  // SYS_...
  int error;    // what it fails with; nothing is done
};

// From now on, on the calling thread and on those that it creates, each of
// `calls` fails. Cannot be undone, ends with the thread. False where the kernel
// has no seccomp filters.
[[nodiscard]] bool DenySystemCalls(std::initializer_list<DeniedCall> calls);

// Runs `f` on a thread for which DenySystemCalls(calls) holds, and waits for
// it; the rest of the process is left alone. False, without running f, where
// the kernel has no seccomp filters.
[[nodiscard]] bool RunDenied(std::initializer_list<DeniedCall> calls,
                             const std::function<void()>& f);

// RunDenied for every way in which libc creates a thread, with the kernel's
// answer at any of its limits.
[[nodiscard]] bool RunWithoutThreadCreation(const std::function<void()>& f);

}  // namespace stillpoint::testing

#endif  // STILLPOINT_TESTS_OS_SECCOMP_FILTER_H_
