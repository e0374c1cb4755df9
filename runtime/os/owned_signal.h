// Handlers for signals that the embedder has set aside for the runtime. Without
// one the library installs no handler and sends no signal.

#ifndef STILLPOINT_RUNTIME_OS_OWNED_SIGNAL_H_
#define STILLPOINT_RUNTIME_OS_OWNED_SIGNAL_H_

#include <signal.h>

#include "absl/status/status.h"

namespace stillpoint {

// Async-signal-safe, takes no lock and no memory. True: the signal was ours
// alone. False: it goes on to the handler of before.
using SignalHandler = bool (*)(int signal, const siginfo_t& info,
                               void* context);

// Installs `handler` (SA_ONSTACK, SA_RESTART, SA_SIGINFO) for `signal`, once in
// the process and for good; again with the same handler does nothing. What was
// there before gets the signals that are not ours, with siginfo and context; in
// place of the default action they are ignored. Errors: InvalidArgument for a
// number that cannot be used for this; AlreadyExists if the signal was set
// aside for something else.
absl::Status OwnSignal(int signal, SignalHandler handler);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_OWNED_SIGNAL_H_
