// Whoever interrupts a switch can unwind (incident G5): the processor stops
// after each instruction, and the handler takes a backtrace.

#include <execinfo.h>
#include <signal.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>

#include "gtest/gtest.h"
#include "runtime/green/context.h"
#include "tests/base/sanitizers.h"
#include "tests/green/fiber.h"

extern "C" void stillpoint_context_start();

namespace stillpoint {
namespace {

using testing::Fiber;
using testing::kAsan;
using testing::kTsan;

struct Step {
  size_t depth;
  uintptr_t outermost;
  uintptr_t at;
};

// Plenty; the handler allocates nothing.
constexpr size_t kMaxSteps = 100'000;
Step steps[kMaxSteps];
size_t step_count;

constexpr int kMaxDepth = 200;

#if defined(__x86_64__)

constexpr greg_t kTrapFlag = 0x100;
volatile bool stepping;

greg_t& FlagsIn(void* context) {
  return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL];
}

void OnStep(int, siginfo_t*, void* context) {
  if (!stepping) {
    FlagsIn(context) &= ~kTrapFlag;
    return;
  }
  static void* frames[kMaxDepth];
  const int depth = backtrace(frames, kMaxDepth);
  if (step_count == kMaxSteps) return;
  steps[step_count++] = {
      .depth = static_cast<size_t>(depth),
      .outermost = reinterpret_cast<uintptr_t>(frames[depth - 1]),
      .at = reinterpret_cast<uintptr_t>(frames[depth > 2 ? 2 : 0])};
}

void SetHandler(int number, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = handler;
  ASSERT_EQ(sigaction(number, &action, nullptr), 0);
}

// By way of signals: compilers do not describe how they get at the flags.
void BeginSteps() {
  SetHandler(SIGTRAP, &OnStep);
  SetHandler(SIGUSR1, [](int, siginfo_t*, void* context) {
    FlagsIn(context) |= kTrapFlag;
  });
  step_count = 0;
  stepping = true;
  raise(SIGUSR1);
}

void EndSteps() {
  stepping = false;
  signal(SIGTRAP, SIG_DFL);
  signal(SIGUSR1, SIG_DFL);
}

#endif

[[gnu::noinline]] void SwitchFromDeeper(Context& from, Context& to,
                                        int levels) {
  if (levels > 0) {
    SwitchFromDeeper(from, to, levels - 1);
  } else {
    Context::Switch(from, to);
  }
  asm volatile("");  // no tail call
}

TEST(UnwindTest, AtEachInstructionOfASwitch) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "steps with x86's trap flag";
#else
  if (kAsan || kTsan) GTEST_SKIP() << "steps through the sanitizer, too";
  void* frames[kMaxDepth];
  int depth = backtrace(frames, kMaxDepth);
  ASSERT_GT(depth, 3);
  const auto thread_end = reinterpret_cast<uintptr_t>(frames[depth - 1]);
  const auto start = reinterpret_cast<uintptr_t>(&stillpoint_context_start);
  constexpr uintptr_t kStartSize = 64;

  Context thread;
  thread.AdoptThread();
  constexpr int kRounds = 3;
  Fiber fiber(thread, [&](Fiber& f) {
    for (int i = 0; i < kRounds; ++i) {
      SwitchFromDeeper(f.context(), thread, i);
    }
  });
  BeginSteps();
  for (int i = 0; i <= kRounds; ++i) {
    SwitchFromDeeper(thread, fiber.context(), 5 - i);
  }
  EndSteps();
  ASSERT_TRUE(fiber.done());

  // The handler, the kernel's return, and one frame that says it is the last.
  constexpr size_t kCut = 3;
  const int switches = 2 * (kRounds + 1);
  size_t on_thread = 0;
  size_t on_fiber = 0;
  size_t cut = 0;
  for (size_t i = 0; i < step_count; ++i) {
    const Step& step = steps[i];
    EXPECT_LT(step.depth, size_t{kMaxDepth});
    if (step.outermost == thread_end) {
      ++on_thread;
    } else if (step.outermost - start < kStartSize) {
      ++on_fiber;
    } else {
      EXPECT_EQ(step.depth, kCut)
          << "at " << reinterpret_cast<void*>(step.at) << " ends at "
          << reinterpret_cast<void*>(step.outermost);
      ++cut;
    }
  }
  EXPECT_LT(step_count, kMaxSteps);
  EXPECT_GT(on_thread, 20u * (kRounds + 1));
  EXPECT_GT(on_fiber, 20u * (kRounds + 1));
  // Two instructions of each.
  EXPECT_LE(cut, 2u * switches);
#endif
}

}  // namespace
}  // namespace stillpoint
