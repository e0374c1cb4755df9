#include "runtime/green/stack_overflow.h"

#include <errno.h>
#include <signal.h>
#include <sys/auxv.h>
#include <ucontext.h>

#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/green/stack.h"

namespace stillpoint {
namespace {

// There is one SIGSEGV in a process, so this is global. Plain data, written
// before the handler is installed.
struct Handler {
  std::atomic<bool> claimed = false;
  FindRunningGreenThread find = nullptr;
  struct sigaction previous = {};
  // SA_RESETHAND of the previous one: it was called already.
  std::atomic<bool> previous_spent = false;
};
constinit Handler handler;

// The kernel or the processor says so of an instruction of this thread; else it
// was sent by somebody.
bool IsFault(const siginfo_t& info) { return info.si_code > 0; }

uintptr_t StackPointerOf(const void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<uintptr_t>(machine.gregs[REG_RSP]);
#else
  return machine.sp;
#endif
}

bool IsOverflow(const Stack& stack, const siginfo_t& info,
                const void* context) {
  if (!IsFault(info)) return false;
  if (stack.IsGuarding(reinterpret_cast<uintptr_t>(info.si_addr))) return true;
  // The frame of another signal's handler did not fit: the kernel then names no
  // address, and it needs this much.
  const uintptr_t sp = StackPointerOf(context);
  return info.si_code == SI_KERNEL && sp >= stack.bounds().low &&
         sp - stack.bounds().low < getauxval(AT_MINSIGSTKSZ);
}

[[noreturn]] void DieOfOverflow(const RunningGreenThread& running) {
  char digits[20];
  const std::to_chars_result end = std::to_chars(
      digits, digits + sizeof(digits), running.stack->size() / 1024);
  Die({"stack overflow in green thread ",
       running.name.empty() ? "(unnamed)" : running.name, ": its stack of ",
       std::string_view(digits, static_cast<size_t>(end.ptr - digits)),
       " KiB is full; give it a larger one, or recurse less"});
}

void DieByDefault(int signal, const siginfo_t& info) {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  // An instruction that faulted is executed again when this returns, and faults
  // where it is. One that was sent has to be sent again.
  if (!IsFault(info)) raise(signal);
}

void PassOn(int signal, siginfo_t* info, void* context) {
  const struct sigaction& previous = handler.previous;
  if ((previous.sa_flags & SA_RESETHAND) != 0 &&
      handler.previous_spent.exchange(true)) {
    return DieByDefault(signal, *info);
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    return previous.sa_sigaction(signal, info, context);
  }
  if (previous.sa_handler == SIG_IGN && !IsFault(*info)) return;
  // The kernel does not ignore faults either.
  if (previous.sa_handler == SIG_IGN || previous.sa_handler == SIG_DFL) {
    return DieByDefault(signal, *info);
  }
  previous.sa_handler(signal);
}

void Handle(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  RunningGreenThread running;
  if (handler.find(running) && IsOverflow(*running.stack, *info, context)) {
    DieOfOverflow(running);
  }
  errno = saved_errno;
  PassOn(signal, info, context);
}

}  // namespace

void InstallStackOverflowHandler(FindRunningGreenThread find) {
  if (handler.claimed.exchange(true)) {
    STILLPOINT_DCHECK(handler.find == nullptr || handler.find == find,
                      "the stack overflow handler has another lookup already");
    return;
  }
  handler.find = find;
  STILLPOINT_CHECK(sigaction(SIGSEGV, nullptr, &handler.previous) == 0,
                   "the action of SIGSEGV cannot be asked for");
  struct sigaction action = {};
  action.sa_sigaction = &Handle;
  // What the previous handler wanted blocked, or not, stays so.
  action.sa_mask = handler.previous.sa_mask;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART |
                    (handler.previous.sa_flags & SA_NODEFER);
  STILLPOINT_CHECK(sigaction(SIGSEGV, &action, nullptr) == 0,
                   "the action of SIGSEGV cannot be set");
}

}  // namespace stillpoint
