// OS threads: creation, identity, name, stack bounds.

#ifndef STILLPOINT_RUNTIME_OS_OS_THREAD_H_
#define STILLPOINT_RUNTIME_OS_OS_THREAD_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace stillpoint {

struct OsThreadOptions {
  // Bytes of stack; 0 = the system's default (ulimit -s).
  // Rounded up to whole pages.
  size_t stack_size = 0;
  // Start with every signal blocked, so that the embedder's handlers never run
  // on a thread that it does not know.
  bool block_signals = false;
};

// Creates a detached OS thread that runs entry(argument), and nothing of ours
// before it: `entry` may be sure that the new thread has not yet allocated or
// touched lazy thread-local storage. What it returns is ignored. Blocks for the
// system calls only. Errors: ResourceExhausted naming the limits that can be
// the cause, with their present values; InvalidArgument for a stack size that
// the system refuses. On error nothing is left behind.
absl::Status StartOsThread(const OsThreadOptions& options,
                           void* (*entry)(void*), void* argument);

// The kernel's id of the calling thread. One system call.
pid_t CurrentTid();

// The name that ps, top and gdb show: at most 15 bytes, cut at a whole UTF-8
// character. One system call.
void SetCurrentOsThreadName(std::string_view name);

struct StackBounds {
  uintptr_t low = 0;   // lowest usable address
  uintptr_t high = 0;  // one past the highest
};

// The calling thread's stack. On the main thread the low end is what
// RLIMIT_STACK allows. Some microseconds; may allocate, and on the main thread
// reads a file of /proc: zeros if that fails.
StackBounds CurrentStackBounds();

// Processors that this process may use now (affinity mask); at least 1.
int AllowedCpuCount();

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_OS_THREAD_H_
