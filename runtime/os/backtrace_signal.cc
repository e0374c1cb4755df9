#include "runtime/os/backtrace_signal.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"

namespace stillpoint {
namespace {

constexpr size_t kMaxFrames = 64;
constexpr int64_t kAnswerNanos = 100'000'000;

// The one request of the process, in static memory: a handler may come when
// nobody waits for it any more. Low bits of `state`: what is going on; the
// others: the number of the request, which the signal carries.
enum : uint32_t { kIdle = 0, kAsked = 1, kRunning = 2, kAnswered = 3 };
constexpr uint32_t kPhase = 3;

struct Request {
  std::atomic<uint32_t> state{kIdle};
  std::atomic<uint32_t> busy{0};  // a futex: 1 while there is a caller
  uint32_t number = 0;            // the caller's own
  StackBounds stack;
  uintptr_t frames[kMaxFrames] = {};
  size_t count = 0;
};
constinit Request g_request;

// What each signal did before. Written before the handler is installed.
struct Before {
  std::atomic<bool> installed{false};
  struct sigaction action = {};
};
constinit Before g_before[NSIG];

// What the signal carries: the number, and a mark that it is one of ours. (Both
// supported processors have pointers of 64 bits.)
void* TokenFor(uint32_t number) {
  return reinterpret_cast<void*>(
      (reinterpret_cast<uintptr_t>(&g_request) << 32) | number);
}

// Not instrumented: it reads stacks as plain memory.
__attribute__((no_sanitize("address"), no_sanitize("thread"))) size_t Walk(
    uintptr_t pc, uintptr_t frame, const StackBounds& stack,
    uintptr_t* frames) {
  size_t count = 0;
  frames[count++] = pc;
  // A frame is the caller's frame pointer and the return address, and the
  // caller's frame is further out.
  while (count < kMaxFrames && frame >= stack.low &&
         frame + 2 * sizeof(uintptr_t) <= stack.high &&
         frame % sizeof(uintptr_t) == 0) {
    const auto* words = reinterpret_cast<const uintptr_t*>(frame);
    if (words[1] == 0) break;
    frames[count++] = words[1];
    if (words[0] <= frame) break;
    frame = words[0];
  }
  return count;
}

void Answer(uint32_t number, const ucontext_t& context) {
  uint32_t expected = (number << 2) | kAsked;
  if (!g_request.state.compare_exchange_strong(expected,
                                               (number << 2) | kRunning)) {
    return;  // too late
  }
#if defined(__x86_64__)
  const auto pc = static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
  const auto frame = static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_RBP]);
#else
  const auto pc = static_cast<uintptr_t>(context.uc_mcontext.pc);
  const auto frame = static_cast<uintptr_t>(context.uc_mcontext.regs[29]);
#endif
  g_request.count = Walk(pc, frame, g_request.stack, g_request.frames);
  g_request.state.store((number << 2) | kAnswered);
  FutexWake(g_request.state, 1);
}

void Chain(int signal, siginfo_t* info, void* context) {
  const struct sigaction& before = g_before[signal].action;
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_IGN && before.sa_handler != SIG_DFL) {
    before.sa_handler(signal);
  }
  // SIG_DFL would end the process: a signal that was set aside for this is
  // ignored where nobody else wants it.
}

void Handler(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const auto number = static_cast<uint32_t>(
      reinterpret_cast<uintptr_t>(info->si_value.sival_ptr));
  if (info->si_code == SI_QUEUE && info->si_pid == getpid() &&
      info->si_value.sival_ptr == TokenFor(number)) {
    Answer(number, *static_cast<const ucontext_t*>(context));
  } else {
    Chain(signal, info, context);
  }
  errno = error;
}

bool Send(int signal, pid_t tid, uint32_t number) {
  siginfo_t info;
  std::memset(&info, 0, sizeof(info));
  info.si_signo = signal;
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_ptr = TokenFor(number);
  return syscall(SYS_rt_tgsigqueueinfo, getpid(), tid, signal, &info) == 0;
}

}  // namespace

absl::Status InstallBacktraceSignal(int signal) {
  if (signal <= 0 || signal >= NSIG || signal == SIGKILL || signal == SIGSTOP ||
      signal == SIGSEGV || signal == SIGBUS || signal == SIGILL ||
      signal == SIGFPE || signal == SIGTRAP || signal == SIGABRT) {
    return absl::InvalidArgumentError(
        absl::StrCat("signal ", signal,
                     " cannot be set aside for backtraces: take one that "
                     "nothing else sends, such as SIGRTMIN + 3"));
  }
  Before& before = g_before[signal];
  if (before.installed.exchange(true)) return absl::OkStatus();
  struct sigaction action;
  std::memset(&action, 0, sizeof(action));
  action.sa_sigaction = &Handler;
  action.sa_flags = SA_ONSTACK | SA_RESTART | SA_SIGINFO;
  sigfillset(&action.sa_mask);
  if (sigaction(signal, nullptr, &before.action) != 0 ||
      sigaction(signal, &action, nullptr) != 0) {
    before.installed.store(false);
    return absl::InvalidArgumentError(absl::StrCat(
        "signal ", signal, " cannot be handled: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

std::vector<uintptr_t> CaptureBacktrace(int signal, pid_t tid,
                                        const StackBounds& stack) {
  std::vector<uintptr_t> frames;
  if (tid == 0) return frames;
  while (g_request.busy.exchange(1) != 0) {
    FutexWait(g_request.busy, 1u, Deadline::Infinite());
  }
  g_request.stack = stack;
  const uint32_t number = ++g_request.number & (UINT32_MAX >> 2);
  g_request.state.store((number << 2) | kAsked);
  const Deadline deadline =
      Deadline::AtMonotonicNanos(MonotonicNanos() + kAnswerNanos);
  bool answered = Send(signal, tid, number);
  while (answered) {
    const uint32_t state = g_request.state.load();
    if ((state & kPhase) == kAnswered) break;
    if ((state & kPhase) == kAsked && deadline.passed()) {
      uint32_t expected = state;
      // A handler that is running is waited for: it is a few instructions.
      if (g_request.state.compare_exchange_strong(expected, kIdle)) {
        answered = false;
      }
      continue;
    }
    FutexWait(g_request.state, state,
              (state & kPhase) == kAsked ? deadline : Deadline::Infinite());
  }
  if (answered) {
    frames.assign(g_request.frames, g_request.frames + g_request.count);
  }
  g_request.state.store(kIdle);
  g_request.busy.store(0);
  FutexWake(g_request.busy, 1);
  return frames;
}

}  // namespace stillpoint
