#include "runtime/os/backtrace_signal.h"

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
#include "runtime/base/clock.h"
#include "runtime/os/frame_walk.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"
#include "runtime/os/owned_signal.h"

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

// What the signal carries: the number, and a mark that it is one of ours. (Both
// supported processors have pointers of 64 bits.)
void* TokenFor(uint32_t number) {
  return reinterpret_cast<void*>(
      (reinterpret_cast<uintptr_t>(&g_request) << 32) | number);
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
  g_request.frames[0] = pc;
  g_request.count = 1 + WalkFrames(frame, g_request.stack, g_request.frames + 1,
                                   kMaxFrames - 1);
  g_request.state.store((number << 2) | kAnswered);
  FutexWake(g_request.state, 1);
}

bool Handle(int /*signal*/, const siginfo_t& info, void* context) {
  const auto number = static_cast<uint32_t>(
      reinterpret_cast<uintptr_t>(info.si_value.sival_ptr));
  if (info.si_code != SI_QUEUE || info.si_pid != getpid() ||
      info.si_value.sival_ptr != TokenFor(number)) {
    return false;
  }
  Answer(number, *static_cast<const ucontext_t*>(context));
  return true;
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
  return OwnSignal(signal, &Handle);
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
