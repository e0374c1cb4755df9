// Incidents I5, G1, G2, G7.

#include "runtime/green/stack_overflow.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/check.h"
#include "runtime/green/context.h"
#include "runtime/green/stack.h"
#include "runtime/green/stack_pool.h"
#include "runtime/os/signal_stack.h"
#include "runtime/os/stack_memory.h"
#include "tests/base/death.h"
#include "tests/base/sanitizers.h"
#include "tests/green/fiber.h"
#include "tests/green/probed_frames.h"

namespace stillpoint {
namespace {

using testing::Fiber;
using testing::kAsan;
using testing::kTsan;

thread_local RunningGreenThread running;

bool FindRunning(RunningGreenThread& found) {
  if (running.stack == nullptr) return false;
  found = running;
  return true;
}

// As a carrier does: runs `body` on a stack of the pool, with a name.
void RunGreen(size_t size, std::string_view name, std::function<void()> body,
              GuardPolicy policy = GuardPolicy::kAuto) {
  InstallStackOverflowHandler(&FindRunning);
  SignalStack signal_stack;
  STILLPOINT_CHECK(signal_stack.Install().ok(), "no signal stack");
  StackPool pool(policy);
  StackCache cache(pool);
  const absl::StatusOr<Stack*> stack = cache.Get(size);
  STILLPOINT_CHECK(stack.ok(), "no stack");
  Context thread;
  thread.AdoptThread();
  Fiber fiber(thread, (*stack)->bounds(), [&body](Fiber&) { body(); });
  running = {.stack = *stack, .name = name};
  fiber.Resume();
  running = {};
  cache.Put(*stack);
}

// Frames of `size` bytes, of which the lowest is touched first.
template <size_t size>
[[gnu::noinline]] int Recurse(int depth) {
  volatile char frame[size];
  asm volatile("" : : "r"(frame) : "memory");  // all of it has to be there
  frame[0] = static_cast<char>(depth);
  const int below = depth < 0 ? 0 : Recurse<size>(depth + 1);
  return below + frame[0];
}

volatile int sink;

class StackOverflowDeathTest : public ::testing::TestWithParam<size_t> {};

TEST_P(StackOverflowDeathTest, NamesTheThread) {
  EXPECT_DIES_SAYING(
      RunGreen(GetParam(), "worker-7", [] { sink = Recurse<100>(0); }),
      "stack overflow in green thread worker-7: its stack of " +
          std::to_string(GetParam() / 1024) + " KiB is full");
}

TEST_P(StackOverflowDeathTest, NamesTheThreadWhereGuardsAreMappings) {
  EXPECT_DIES_SAYING(RunGreen(
                         GetParam(), "worker-8", [] { sink = Recurse<100>(0); },
                         GuardPolicy::kProtect),
                     "stack overflow in green thread worker-8");
}

TEST_P(StackOverflowDeathTest, FramesOfSeveralPages) {
  EXPECT_DIES_SAYING(
      RunGreen(GetParam(), "large", [] { sink = Recurse<20'000>(0); }),
      "stack overflow in green thread large");
}

TEST_P(StackOverflowDeathTest, FramesAlmostAsLargeAsTheGuard) {
  EXPECT_DIES_SAYING(
      RunGreen(GetParam(), "larger",
               [] { sink = Recurse<kStackGuardSize - 4096>(0); }),
      "stack overflow in green thread larger");
}

// 16 MiB at once: it would land in somebody's stack, far below, but for the
// probes.
TEST_P(StackOverflowDeathTest, ProbedFramesOfAnySize) {
  EXPECT_DIES_SAYING(
      RunGreen(GetParam(), "largest", testing::TouchLowEndOfLargeFrame),
      "stack overflow in green thread largest");
}

INSTANTIATE_TEST_SUITE_P(Sizes, StackOverflowDeathTest,
                         ::testing::Values(kMinStackSize, kDefaultStackSize,
                                           size_t{1} << 20, kMaxStackSize),
                         [](const ::testing::TestParamInfo<size_t>& info) {
                           return std::to_string(info.param / 1024) + "KiB";
                         });

TEST(StackOverflowOtherDeathTest, OnAnotherCarrier) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DIES_SAYING(
      {
        std::thread([] { RunGreen(kDefaultStackSize, "first", [] {}); }).join();
        std::thread([] {
          RunGreen(kDefaultStackSize, "second", [] { sink = Recurse<100>(0); });
        }).join();
      },
      "stack overflow in green thread second");
}

TEST(StackOverflowOtherDeathTest, WithoutAName) {
  EXPECT_DIES_SAYING(
      RunGreen(kDefaultStackSize, "", [] { sink = Recurse<100>(0); }),
      "stack overflow in green thread (unnamed)");
}

// Where a signal's handler asks for no stack of its own, its frame goes on the
// green thread's.
TEST(StackOverflowOtherDeathTest, NoRoomForASignalFrame) {
  if (kTsan) GTEST_SKIP() << "signals are delivered later";
  EXPECT_DIES_SAYING(
      {
        signal(SIGUSR1, [](int) {});
        RunGreen(kMinStackSize, "small", [] {
          // Down to the last few hundred bytes.
          const auto here =
              reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
          auto* rest = static_cast<volatile char*>(
              __builtin_alloca(here - running.stack->bounds().low - 700));
          rest[0] = 1;
          raise(SIGUSR1);
        });
      },
      "stack overflow in green thread small");
}

// What is not an overflow is not called one.

volatile char* const kNowhere = reinterpret_cast<volatile char*>(0x1230);

void WriteNowhere() { *kNowhere = 1; }

void ReportFault(int, siginfo_t* info, void*) {
  char text[100];
  const int length = snprintf(text, sizeof(text), "fault at %p, code %d\n",
                              info->si_addr, info->si_code);
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, text, static_cast<size_t>(length));
  _exit(3);
}

void SetHandler(void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  sigaction(SIGSEGV, &action, nullptr);
}

TEST(StackOverflowChainTest, OtherFaultsReachThePreviousHandler) {
  EXPECT_EXIT(
      {
        SetHandler(&ReportFault, SA_ONSTACK);
        RunGreen(kDefaultStackSize, "other", WriteNowhere);
      },
      ::testing::ExitedWithCode(3), "^fault at 0x1230, code 1\n$");
}

TEST(StackOverflowChainTest, SoDoFaultsOutsideOfGreenThreads) {
  EXPECT_EXIT(
      {
        SetHandler(&ReportFault, SA_ONSTACK);
        RunGreen(kDefaultStackSize, "other", [] {});
        WriteNowhere();
      },
      ::testing::ExitedWithCode(3), "^fault at 0x1230, code 1\n$");
}

// A wild pointer into the guard of a stack that is not the one in use.
TEST(StackOverflowChainTest, SoDoFaultsInAnothersGuard) {
  EXPECT_EXIT(
      {
        SetHandler(&ReportFault, SA_ONSTACK);
        StackPool pool;
        StackCache cache(pool);
        Stack* other = *cache.Get(kDefaultStackSize);
        RunGreen(kDefaultStackSize, "innocent", [other] {
          *reinterpret_cast<volatile char*>(other->bounds().low - 1) = 1;
        });
      },
      ::testing::ExitedWithCode(3), "^fault at ");
}

TEST(StackOverflowChainTest, SoDoSignalsThatSomebodySends) {
  EXPECT_EXIT(
      {
        SetHandler(&ReportFault, SA_ONSTACK);
        RunGreen(kDefaultStackSize, "other", [] { raise(SIGSEGV); });
      },
      ::testing::ExitedWithCode(3), "^fault at .*code -6\n$");
}

TEST(StackOverflowChainTest, PreviousHandlerOfTheOldKind) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, [](int number) { _exit(number + 40); });
        RunGreen(kDefaultStackSize, "other", WriteNowhere);
      },
      ::testing::ExitedWithCode(SIGSEGV + 40), "^$");
}

TEST(StackOverflowChainTest, PreviousHandlerMayRepairAndReturn) {
  EXPECT_EXIT(
      {
        static char* page;
        page = static_cast<char*>(
            mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        SetHandler(
            [](int, siginfo_t*, void*) {
              mprotect(page, 4096, PROT_READ | PROT_WRITE);
              errno = EDOM;
            },
            SA_ONSTACK);
        RunGreen(kDefaultStackSize, "other", [] {
          *static_cast<volatile char*>(page) = 1;
          *static_cast<volatile char*>(page) = 1;
        });
        _exit(page[0] == 1 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST(StackOverflowChainTest, PreviousHandlerForOneTimeOnly) {
  EXPECT_EXIT(
      {
        SetHandler([](int, siginfo_t*, void*) {}, SA_ONSTACK | SA_RESETHAND);
        RunGreen(kDefaultStackSize, "other", WriteNowhere);
      },
      ::testing::KilledBySignal(SIGSEGV), "^$");
}

TEST(StackOverflowChainTest, DefaultActionIsTheFaultItself) {
  if (kAsan || kTsan) GTEST_SKIP() << "the sanitizer has a handler";
  EXPECT_EXIT(RunGreen(kDefaultStackSize, "other", WriteNowhere),
              ::testing::KilledBySignal(SIGSEGV), "^$");
  EXPECT_EXIT(
      RunGreen(kDefaultStackSize, "other", [] { kill(getpid(), SIGSEGV); }),
      ::testing::KilledBySignal(SIGSEGV), "^$");
}

TEST(StackOverflowChainTest, IgnoredOnesStayIgnoredUnlessTheyAreFaults) {
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_IGN);
        RunGreen(kDefaultStackSize, "other", [] { raise(SIGSEGV); });
        _exit(4);
      },
      ::testing::ExitedWithCode(4), "^$");
  EXPECT_EXIT(
      {
        signal(SIGSEGV, SIG_IGN);
        RunGreen(kDefaultStackSize, "other", WriteNowhere);
      },
      ::testing::KilledBySignal(SIGSEGV), "^$");
}

// An embedder that comes later gets faults first, and passes on what is not
// its own.
struct sigaction ours;

TEST(StackOverflowChainTest, LaterHandlerPassesOn) {
  EXPECT_EXIT(
      {
        InstallStackOverflowHandler(&FindRunning);
        sigaction(SIGSEGV, nullptr, &ours);
        SetHandler(
            [](int number, siginfo_t* info, void* context) {
              if (info->si_addr == kNowhere) _exit(5);
              ours.sa_sigaction(number, info, context);
            },
            SA_ONSTACK);
        RunGreen(kDefaultStackSize, "later", WriteNowhere);
      },
      ::testing::ExitedWithCode(5), "^$");
  EXPECT_DIES_SAYING(
      {
        InstallStackOverflowHandler(&FindRunning);
        sigaction(SIGSEGV, nullptr, &ours);
        SetHandler(
            [](int number, siginfo_t* info, void* context) {
              ours.sa_sigaction(number, info, context);
            },
            SA_ONSTACK);
        RunGreen(kDefaultStackSize, "later", [] { sink = Recurse<100>(0); });
      },
      "stack overflow in green thread later");
}

TEST(StackOverflowChainTest, HandlerIsInstalledAsItShouldBe) {
  EXPECT_EXIT(
      {
        struct sigaction before = {};
        before.sa_sigaction = &ReportFault;
        before.sa_flags = SA_SIGINFO;
        sigaddset(&before.sa_mask, SIGUSR2);
        sigaction(SIGSEGV, &before, nullptr);
        InstallStackOverflowHandler(&FindRunning);
        struct sigaction first;
        sigaction(SIGSEGV, nullptr, &first);
        InstallStackOverflowHandler(&FindRunning);
        struct sigaction second;
        sigaction(SIGSEGV, nullptr, &second);
        constexpr int kWanted = SA_ONSTACK | SA_SIGINFO | SA_RESTART;
        _exit((first.sa_flags & kWanted) == kWanted &&
                      first.sa_sigaction != &ReportFault &&
                      sigismember(&first.sa_mask, SIGUSR2) == 1 &&
                      second.sa_sigaction == first.sa_sigaction
                  ? 0
                  : 1);
      },
      ::testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace stillpoint
