// What happens when a green thread's stack is full: the process dies with
// "stillpoint: stack overflow in green thread NAME".
//
// A green thread that touches the guard below its stack gets SIGSEGV, and has
// no stack left to handle it on. So the handler runs on the carrier's signal
// stack (os/signal_stack.h). It is the one signal handler that the runtime
// installs, and only for processes that have green threads.
//
// It ends the process by abort(), as every misuse does, after one sentence that
// names the thread. To raise SIGSEGV again instead would hand a fault that is
// explained already to whatever handler the embedder has for unexplained ones.
// A debugger sees the overflowed frames below the handler's either way.
//
// Every other SIGSEGV goes to the handler that was installed before, with what
// the kernel said of it; to the default action if there was none (incidents G1,
// G2). An embedder that installs a handler later gets all faults first, and has
// to pass on those that are not its own, as is the custom; if it is installed
// without SA_ONSTACK, an overflow cannot be delivered at all, and the kernel
// ends the process without a sentence.
//
// A frame larger than kStackGuardSize (green/stack.h) may step over the guard;
// not so in code compiled with -fstack-clash-protection.

#ifndef STILLPOINT_RUNTIME_GREEN_STACK_OVERFLOW_H_
#define STILLPOINT_RUNTIME_GREEN_STACK_OVERFLOW_H_

#include <string_view>

#include "runtime/green/stack.h"

namespace stillpoint {

struct RunningGreenThread {
  const Stack* stack = nullptr;
  std::string_view name;
};

// Says in `running` which green thread the calling OS thread is running; false
// if none. Called in a signal handler: it may read what the thread itself has
// written, and call nothing that locks or allocates.
using FindRunningGreenThread = bool (*)(RunningGreenThread& running);

// The first call installs the handler, for the whole process and for good; any
// other does nothing (one that comes at the same time may return before it is
// there). `find` is the same in all of them. Any thread; two system calls.
void InstallStackOverflowHandler(FindRunningGreenThread find);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_STACK_OVERFLOW_H_
