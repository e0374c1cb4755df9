// What the kernel says of a thread that is late. For reports only: it reads
// files of /proc, which takes some ten microseconds.

#ifndef STILLPOINT_RUNTIME_OS_THREAD_PROBE_H_
#define STILLPOINT_RUNTIME_OS_THREAD_PROBE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace stillpoint {

// One look. What the kernel does not tell (no /proc, a seccomp filter, no
// such thread) is missing.
struct ThreadProbe {
  // CPU time so far, in ns. (How long it has waited for a processor the kernel
  // does not know before it has got one.)
  std::optional<int64_t> cpu_nanos;
  // As ps shows it: R runs or wants to, S and D sleep in the kernel, T is
  // stopped; '?' unknown.
  char state = '?';
  // Of a sleeper: the number of the system call that it is in, -1 if it is in
  // none (a page fault).
  std::optional<int> system_call;
};

// Of a thread of this process. Any thread, any state; no memory of the heap.
ThreadProbe ProbeThread(pid_t tid);

// The name that the system shows for a thread of this process; empty if it does
// not say.
std::string OsThreadName(pid_t tid);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_THREAD_PROBE_H_
