// The native backtrace of another thread, by a signal that the embedder has
// set aside for it. Opt-in: without it the library sends no signal and installs
// no handler.

#ifndef STILLPOINT_RUNTIME_OS_BACKTRACE_SIGNAL_H_
#define STILLPOINT_RUNTIME_OS_BACKTRACE_SIGNAL_H_

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/os/os_thread.h"

namespace stillpoint {

// Sets `signal` aside for this (owned_signal.h, which has the errors). A signal
// that CaptureBacktrace has not sent goes on to the handler of before.
absl::Status InstallBacktraceSignal(int signal);

// Return addresses of the thread, innermost first, beginning with the
// instruction that it is at; empty if it does not answer within a tenth of a
// second (it has ended, blocks the signal, or does not get a processor).
// Follows frame pointers inside `stack`, and reads nothing else: code compiled
// without them (-fno-omit-frame-pointer) is left out or ends the list. The
// handler takes no lock and no memory. One caller at a time, others wait for
// it; not in a signal handler.
std::vector<uintptr_t> CaptureBacktrace(int signal, pid_t tid,
                                        const StackBounds& stack);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_BACKTRACE_SIGNAL_H_
