#include "runtime/os/cpu_clock.h"

#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <optional>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/os/os_thread.h"
#include "tests/base/death.h"
#include "tests/os/seccomp_filter.h"
#include "tests/os/thread_watch.h"

namespace stillpoint {
namespace {

using testing::AwaitGone;
using testing::AwaitSleeping;
using testing::RunDenied;

constexpr clockid_t kOwnTotal =
    CpuClockId(CpuClockOf::kThread, 0, CpuClock::kTotal);
constexpr clockid_t kOwnUser =
    CpuClockId(CpuClockOf::kThread, 0, CpuClock::kUser);

// A constant expression has no undefined behaviour: a shift of a negative
// number, or an overflow, would not compile.
static_assert(kOwnTotal == -2);
static_assert(kOwnUser == -3);
static_assert(CpuClockId(CpuClockOf::kProcess, 0, CpuClock::kTotal) == -6);
static_assert(CpuClockId(CpuClockOf::kProcess, 0, CpuClock::kUser) == -7);
static_assert(CpuClockId(CpuClockOf::kThread, 1, CpuClock::kTotal) == -10);
static_assert(CpuClockId(CpuClockOf::kThread, 1 << 22, CpuClock::kUser) ==
              -8 * (1 << 22) - 3);
static_assert(CpuClockId(CpuClockOf::kThread, INT_MAX, CpuClock::kTotal) == 6);

// A thread that sleeps until it is let go.
class Sleeper {
 public:
  Sleeper() {
    thread_ = std::thread([this] {
      tid_.store(CurrentTid());
      char byte;
      EXPECT_EQ(read(pipe_[0], &byte, 1), 1);
    });
    while (tid_.load() == 0) std::this_thread::yield();
    AwaitSleeping(tid_.load());
  }
  ~Sleeper() {
    if (thread_.joinable()) End();
  }
  void End() {
    EXPECT_EQ(write(pipe_[1], "x", 1), 1);
    thread_.join();
    AwaitGone(tid());
    close(pipe_[0]);
    close(pipe_[1]);
  }
  pid_t tid() const { return tid_.load(); }
  pthread_t handle() { return thread_.native_handle(); }

 private:
  static void OpenOrFail(int (&ends)[2]) { ASSERT_EQ(pipe(ends), 0); }
  struct Pipe {
    Pipe() { OpenOrFail(ends); }
    int& operator[](int i) { return ends[i]; }
    int ends[2] = {-1, -1};
  };

  Pipe pipe_;
  std::atomic<pid_t> tid_{0};
  std::thread thread_;
};

TEST(CpuClockIdTest, OfAThreadIsTheOneThatLibcMakes) {
  Sleeper sleeper;
  clockid_t expected;
  ASSERT_EQ(pthread_getcpuclockid(sleeper.handle(), &expected), 0);
  EXPECT_EQ(CpuClockId(CpuClockOf::kThread, sleeper.tid(), CpuClock::kTotal),
            expected);
}

TEST(CpuClockIdTest, OfAProcessIsTheOneThatLibcMakes) {
  clockid_t expected;
  ASSERT_EQ(clock_getcpuclockid(getppid(), &expected), 0);
  EXPECT_EQ(CpuClockId(CpuClockOf::kProcess, getppid(), CpuClock::kTotal),
            expected);
}

TEST(ReadCpuClockTest, GoesOnWithWork) {
  for (const clockid_t clock :
       {kOwnTotal, kOwnUser,
        CpuClockId(CpuClockOf::kThread, CurrentTid(), CpuClock::kTotal),
        CpuClockId(CpuClockOf::kThread, CurrentTid(), CpuClock::kUser),
        CpuClockId(CpuClockOf::kProcess, 0, CpuClock::kTotal),
        CpuClockId(CpuClockOf::kProcess, 0, CpuClock::kUser)}) {
    const std::optional<int64_t> before = ReadCpuClock(clock);
    ASSERT_TRUE(before.has_value()) << clock;
    std::optional<int64_t> now = before;
    // User time may come tick by tick.
    while (*now == *before) {
      now = ReadCpuClock(clock);
      ASSERT_TRUE(now.has_value()) << clock;
      ASSERT_GE(*now, *before);
    }
  }
}

TEST(ReadCpuClockTest, IdZeroIsTheCaller) {
  const int64_t before =
      *ReadCpuClock(CpuClockId(CpuClockOf::kThread, CurrentTid(),  //
                               CpuClock::kTotal));
  const int64_t own = *ReadCpuClock(kOwnTotal);
  const int64_t after = CurrentThreadKernelCpuNanos();
  EXPECT_LE(before, own);
  EXPECT_LE(own, after);
}

TEST(ReadCpuClockTest, ASleeperUsesNothing) {
  Sleeper sleeper;
  for (const CpuClock clock : {CpuClock::kTotal, CpuClock::kUser}) {
    const clockid_t id = CpuClockId(CpuClockOf::kThread, sleeper.tid(), clock);
    const std::optional<int64_t> first = ReadCpuClock(id);
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(ReadCpuClock(id), first);
  }
}

TEST(ReadCpuClockTest, OfAThreadThatIsGoneIsNothing) {
  Sleeper sleeper;
  const clockid_t id =
      CpuClockId(CpuClockOf::kThread, sleeper.tid(), CpuClock::kTotal);
  EXPECT_TRUE(ReadCpuClock(id).has_value());
  sleeper.End();
  EXPECT_FALSE(ReadCpuClock(id).has_value());
}

TEST(ReadCpuClockTest, OfAnotherProcessThreadIsNothing) {
  // The main thread of the parent: not one of this process.
  EXPECT_FALSE(
      ReadCpuClock(CpuClockId(CpuClockOf::kThread, getppid(), CpuClock::kTotal))
          .has_value());
}

TEST(CpuClockRefusedTest, IsNothing) {
  if (!RunDenied({{SYS_clock_gettime, EPERM}}, [] {
        EXPECT_FALSE(ReadCpuClock(kOwnTotal).has_value());
        EXPECT_FALSE(ReadCpuClock(kOwnUser).has_value());
      })) {
    GTEST_SKIP() << "this kernel has no seccomp filters";
  }
}

TEST(CpuClockRefusedDeathTest, TheOwnClockDiesWithTheRemedy) {
  EXPECT_DIES_SAYING(
      {
        if (!testing::DenySystemCalls({{SYS_clock_gettime, EPERM}})) {
          FAIL() << "this kernel has no seccomp filters";
        }
        CurrentThreadKernelCpuNanos();
      },
      "CPU clock", "Operation not permitted", "seccomp");
}

}  // namespace
}  // namespace stillpoint
