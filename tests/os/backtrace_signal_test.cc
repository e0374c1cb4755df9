#include "runtime/os/backtrace_signal.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/sanitizer.h"
#include "runtime/os/os_thread.h"
#include "runtime/os/symbolize.h"
#include "tests/support/await.h"

namespace stillpoint {
namespace {

using testing::Await;

std::atomic<bool> end{false};

// So that there are frames to find, and where.
__attribute__((noinline)) void Inner() {
  // A function that calls none has no frame of its own, unless it asks for one:
  // compilers leave it out even with -fno-omit-frame-pointer.
  asm volatile("" : : "r"(__builtin_frame_address(0)) : "memory");
  while (!end.load(std::memory_order_relaxed)) {
  }
  asm volatile("" ::: "memory");
}
__attribute__((noinline)) void Outer() {
  Inner();
  asm volatile("" ::: "memory");
}

bool IsIn(uintptr_t address, void (*function)()) {
  const auto begin = reinterpret_cast<uintptr_t>(function);
  return address >= begin && address < begin + 400;
}

// What a handler of before has seen.
std::atomic<int> seen_signal{0};
std::atomic<int> seen_value{0};
std::atomic<bool> seen_context{false};

void Before(int signal, siginfo_t* info, void* context) {
  seen_signal.store(signal);
  seen_value.store(info->si_value.sival_int);
  seen_context.store(context != nullptr);
}

// Incidents G1 and G2.
TEST(BacktraceSignalTest, TheHandlerAndTheOneOfBefore) {
  const int signal = SIGRTMIN + 4;
  struct sigaction action = {};
  action.sa_sigaction = &Before;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(signal, &action, nullptr), 0);
  ASSERT_TRUE(InstallBacktraceSignal(signal).ok());
  ASSERT_TRUE(InstallBacktraceSignal(signal).ok());  // once
  struct sigaction installed = {};
  ASSERT_EQ(sigaction(signal, nullptr, &installed), 0);
  EXPECT_NE(installed.sa_flags & SA_ONSTACK, 0);
  EXPECT_NE(installed.sa_flags & SA_RESTART, 0);
  EXPECT_NE(installed.sa_flags & SA_SIGINFO, 0);
  sigval value;
  memset(&value, 0, sizeof(value));
  value.sival_int = 42;
  ASSERT_EQ(sigqueue(getpid(), signal, value), 0);
  Await([] { return seen_signal.load() != 0; });
  EXPECT_EQ(seen_signal.load(), signal);
  EXPECT_EQ(seen_value.load(), 42);
  EXPECT_TRUE(seen_context.load());
}

TEST(BacktraceSignalTest, SignalsThatAreOfNoUse) {
  for (const int signal : {0, -1, 10'000, SIGKILL, SIGSTOP, SIGSEGV}) {
    EXPECT_FALSE(InstallBacktraceSignal(signal).ok()) << signal;
  }
}

TEST(BacktraceSignalTest, WhereAThreadIs) {
#ifdef STILLPOINT_TSAN
  GTEST_SKIP() << "TSan calls handlers later, from frames of its own";
#endif
  const int signal = SIGRTMIN + 3;
  ASSERT_TRUE(InstallBacktraceSignal(signal).ok());
  std::atomic<pid_t> tid{0};
  StackBounds stack;
  end.store(false);
  std::thread spinning([&] {
    stack = CurrentStackBounds();
    tid.store(CurrentTid());
    Outer();
  });
  Await([&] { return tid.load() != 0; });
  bool inner = false;
  bool outer = false;
  // It may not have come there yet, or not get a processor in time.
  Await([&] {
    for (const uintptr_t frame : CaptureBacktrace(signal, tid.load(), stack)) {
      inner = inner || IsIn(frame, &Inner);
      outer = outer || IsIn(frame, &Outer);
    }
    return inner && outer;
  });
  end.store(true);
  spinning.join();
  // It has ended: no answer, and no harm.
  EXPECT_TRUE(CaptureBacktrace(signal, tid.load(), stack).empty());
  EXPECT_TRUE(CaptureBacktrace(signal, 0, stack).empty());
}

TEST(SymbolizeTest, ExportedAndNot) {
  const std::string known =
      SymbolizeAddress(reinterpret_cast<uintptr_t>(&strlen));
  EXPECT_NE(known.find("+0x"), std::string::npos) << known;
  EXPECT_EQ(SymbolizeAddress(0x10), "0x10");
}

}  // namespace
}  // namespace stillpoint
