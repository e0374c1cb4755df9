#include "runtime/os/owned_signal.h"

#include <errno.h>
#include <signal.h>

#include <atomic>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace stillpoint {
namespace {

// Written before the handler is installed.
struct Owned {
  std::atomic<SignalHandler> handler{nullptr};
  struct sigaction before = {};
};
constinit Owned g_owned[NSIG];

void Handle(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const Owned& owned = g_owned[signal];
  if (!owned.handler.load()(signal, *info, context)) {
    const struct sigaction& before = owned.before;
    if ((before.sa_flags & SA_SIGINFO) != 0) {
      before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler != SIG_IGN && before.sa_handler != SIG_DFL) {
      before.sa_handler(signal);
    }
  }
  errno = error;
}

bool IsUsable(int signal) {
  if (signal <= 0 || signal >= NSIG) return false;
  // What cannot be handled, and what the processor or abort() raises.
  for (const int other :
       {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT}) {
    if (signal == other) return false;
  }
  return true;
}

}  // namespace

absl::Status OwnSignal(int signal, SignalHandler handler) {
  if (!IsUsable(signal)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "signal ", signal,
        " cannot be set aside: take one that nothing else sends, such as "
        "SIGRTMIN + 3"));
  }
  Owned& owned = g_owned[signal];
  SignalHandler other = nullptr;
  if (!owned.handler.compare_exchange_strong(other, handler)) {
    if (other == handler) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat(
        "signal ", signal,
        " was set aside for something else of the runtime: take another one"));
  }
  struct sigaction action;
  std::memset(&action, 0, sizeof(action));
  action.sa_sigaction = &Handle;
  action.sa_flags = SA_ONSTACK | SA_RESTART | SA_SIGINFO;
  sigfillset(&action.sa_mask);
  if (sigaction(signal, nullptr, &owned.before) == 0 &&
      sigaction(signal, &action, nullptr) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  owned.handler.store(nullptr);
  return absl::InvalidArgumentError(absl::StrCat(
      "signal ", signal, " cannot be handled: ", std::strerror(error)));
}

}  // namespace stillpoint
