#include "runtime/os/fast_cpu_clock.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/thread_state.h"
#include "runtime/base/tls_block.h"
#include "runtime/os/cpu_clock.h"
#include "runtime/os/fast_cpu_clock_choice.h"
#include "runtime/os/rseq_area.h"
#include "runtime/os/tsc.h"
#include "tests/base/sanitizers.h"

namespace stillpoint {
namespace {

using ::testing::HasSubstr;
using testing::Rounds;

constexpr int64_t kMaxAge = 100'000;
// A base may be off by half the time that it took to take it (10 us at most),
// and the counter's rate by 1 in 1,000.
constexpr int64_t kSlack = 10'000 + kMaxAge / 1000;

// One that counts, also where this kernel allows that in Managed only: a test's
// thread does not block unawares.
FastCpuClockConfig ConfigOrOff() {
  FastCpuClockChoice choice;
  do {
    choice = ChooseFastCpuClock(kMaxAge);
  } while (choice.reason.find("self-test could not") != std::string::npos);
  if (choice.config.mode == FastCpuClockMode::kManagedOnly) {
    choice.config.mode = FastCpuClockMode::kEverywhere;
  }
  return choice.config;
}

class FastCpuClockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = ConfigOrOff();
    if (config_.mode == FastCpuClockMode::kOff) {
      GTEST_SKIP() << ChooseFastCpuClock(kMaxAge).reason;
    }
    clock_.Begin(config_);
  }

  FastCpuClockConfig config_;
  FastCpuClock clock_;
};

// The promise of the header, which holds however the thread is treated.
void ExpectWithinBounds(FastCpuClock& clock) {
  const int64_t before = CurrentThreadKernelCpuNanos();
  const int64_t read = clock.Read();
  const int64_t after = CurrentThreadKernelCpuNanos();
  ASSERT_GE(read, before - kSlack);
  ASSERT_LE(read, after + kMaxAge + kSlack);
}

TEST_F(FastCpuClockTest, CountsFromOneBase) {
  // A thread that is preempted in between needs a second one.
  bool without_base = false;
  for (int i = 0; i < 10'000 && !without_base; ++i) {
    const int64_t first = clock_.Read();
    const uint64_t bases = clock_.stats().bases;
    const int64_t second = clock_.Read();
    EXPECT_GE(second, first);
    without_base = clock_.stats().bases == bases && second > first;
  }
  EXPECT_TRUE(without_base);
}

TEST_F(FastCpuClockTest, StaysWithinItsBounds) {
  for (int i = 0; i < Rounds(20'000); ++i) ExpectWithinBounds(clock_);
}

TEST_F(FastCpuClockTest, StaysWithinItsBoundsAmongMoreThreadsThanProcessors) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([this] {
      FastCpuClock own;
      own.Begin(config_);
      int64_t last = 0;
      for (int i = 0; i < Rounds(10'000); ++i) {
        ExpectWithinBounds(own);
        for (int k = 0; k < 20; ++k) {
          const int64_t now = own.Read();
          ASSERT_GE(now, last);
          last = now;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(FastCpuClockTest, AnOldBaseIsNotCountedFrom) {
  clock_.Read();
  const uint64_t bases = clock_.stats().bases;
  const uint64_t begin = ReadTsc();
  while (ReadTsc() - begin <= config_.max_age_ticks) {
  }
  clock_.Read();
  EXPECT_GT(clock_.stats().bases, bases);
}

TEST_F(FastCpuClockTest, ABoundShorterThanASystemCallKeepsNoBase) {
  config_.max_age_ticks = 1;
  clock_.Begin(config_);
  for (int i = 0; i < 100; ++i) ExpectWithinBounds(clock_);
  EXPECT_FALSE(clock_.has_base());
  EXPECT_EQ(clock_.stats().bases, 0u);
}

TEST_F(FastCpuClockTest, ADroppedBaseIsNotCountedFrom) {
  clock_.Read();
  clock_.DropBase();
  EXPECT_FALSE(clock_.has_base());
  const uint64_t bases = clock_.stats().bases;
  clock_.Read();
  EXPECT_GT(clock_.stats().bases, bases);
}

TEST_F(FastCpuClockTest, AClearedFieldIsNoticed) {
  clock_.Read();
  CurrentThreadRseqField()->store(0);
  const uint64_t bases = clock_.stats().bases;
  ExpectWithinBounds(clock_);
  EXPECT_GT(clock_.stats().bases, bases);
  EXPECT_EQ(clock_.stats().other_users, 0u);
}

TEST_F(FastCpuClockTest, AnotherUserCostsABaseAndIsCounted) {
  // A descriptor like ours, of somebody else: the kernel will look at it.
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* copy = mmap(nullptr, page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(copy, MAP_FAILED);
  std::memcpy(copy, reinterpret_cast<void*>(config_.descriptor), page);
  std::atomic<uint64_t>& field = *CurrentThreadRseqField();
  clock_.Read();
  uint64_t found = 0;
  // A preemption clears theirs, as ours, so that now and then one is missed.
  for (int i = 0; i < 100; ++i) {
    field.store(reinterpret_cast<uintptr_t>(copy));
    const uint64_t bases = clock_.stats().bases;
    ExpectWithinBounds(clock_);
    EXPECT_GT(clock_.stats().bases, bases);
    found = clock_.stats().other_users;
  }
  EXPECT_GT(found, 0u);
  EXPECT_LE(found, 100u);
  field.store(0);  // before its page goes
  munmap(copy, page);
}

TEST_F(FastCpuClockTest, StandsStillUntilTimeHasCaughtUp) {
  constexpr int64_t kAhead = 3'600'000'000'000;
  const int64_t ahead = clock_.AtLeast(clock_.Read() + kAhead);
  EXPECT_EQ(clock_.AtLeast(0), ahead);
  EXPECT_EQ(clock_.last(), ahead);
  EXPECT_EQ(clock_.stats().overruns, 0u);
  clock_.DropBase();
  EXPECT_EQ(clock_.Read(), ahead);
  EXPECT_EQ(clock_.Read(), ahead);
  EXPECT_GE(clock_.stats().overruns, 1u);
  EXPECT_GT(clock_.stats().worst_overrun, kAhead / 2);
  EXPECT_LE(clock_.stats().worst_overrun, kAhead);
  clock_.Begin(config_);
  EXPECT_LT(clock_.Read(), ahead);
  EXPECT_EQ(clock_.stats().overruns, 0u);
}

// --- Signal handlers that read the clock which they interrupt. ---

FastCpuClock* signal_clock = nullptr;
std::atomic<int64_t> largest{0};
std::atomic<int> backwards{0};
std::atomic<int> handled{0};

void ReadInHandler(int) {
  const int64_t before = largest.load();
  const int64_t now = signal_clock->Read();
  if (now < before) backwards.fetch_add(1);
  int64_t seen = largest.load();
  while (seen < now && !largest.compare_exchange_weak(seen, now)) {
  }
  handled.fetch_add(1);
}

TEST_F(FastCpuClockTest, HandlersAndTheCodeBelowNeverSeeItGoBackwards) {
  signal_clock = &clock_;
  struct sigaction action = {};
  action.sa_handler = &ReadInHandler;
  action.sa_flags = SA_RESTART;
  // Two signals: the handler of one interrupts that of the other.
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  ASSERT_EQ(sigaction(SIGUSR2, &action, nullptr), 0);
  const pthread_t reader = pthread_self();
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    while (!stop.load()) {
      pthread_kill(reader, SIGUSR1);
      pthread_kill(reader, SIGUSR2);
      sched_yield();  // on one processor it runs in the reader's place
    }
  });
  while (handled.load() < Rounds(2000)) {
    for (int i = 0; i < 100; ++i) {
      const int64_t before = largest.load();
      const int64_t now = clock_.Read();
      ASSERT_GE(now, before);
      int64_t seen = largest.load();
      while (seen < now && !largest.compare_exchange_weak(seen, now)) {
      }
    }
    ExpectWithinBounds(clock_);
  }
  stop.store(true);
  sender.join();
  EXPECT_EQ(backwards.load(), 0);
  signal(SIGUSR1, SIG_DFL);
  signal(SIGUSR2, SIG_DFL);
}

// --- fork: the child's clock begins at 0. ---

TEST_F(FastCpuClockTest, TheChildOfAForkBeginsAnew) {
  // More than the child will use before it reads.
  constexpr int64_t kMuch = 50'000'000;
  while (clock_.Read() < kMuch) {
  }
  const int64_t parent = clock_.Read();
  for (int i = 0; i < 20; ++i) {
    clock_.Read();  // a fresh base, which the child inherits
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const int64_t first = clock_.Read();
      const int64_t kernel = CurrentThreadKernelCpuNanos();
      _exit(first <= kernel + kMaxAge + kSlack ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_GE(clock_.Read(), parent);
  }
}

// --- Where a system call that blocks is not reported. ---

TEST_F(FastCpuClockTest, ManagedOnlyKeepsNoBaseInASafeState) {
  config_.mode = FastCpuClockMode::kManagedOnly;
  clock_.Begin(config_);
  ExpectWithinBounds(clock_);  // unattached, which counts as safe
  EXPECT_FALSE(clock_.has_base());

  std::atomic<ThreadState> state{ThreadState::kManaged};
  tls_block.state = &state;
  ExpectWithinBounds(clock_);
  EXPECT_TRUE(clock_.has_base());
  const int64_t managed = clock_.Read();

  state.store(ThreadState::kNative);
  clock_.DropBase();  // as every way out of Managed does
  EXPECT_GE(clock_.Read(), managed);
  EXPECT_FALSE(clock_.has_base());
  EXPECT_EQ(clock_.last(), clock_.AtLeast(0));
  tls_block.state = nullptr;
}

TEST(FastCpuClockOffTest, AsksTheKernelEachTime) {
  FastCpuClock clock;
  clock.Begin(FastCpuClockConfig());
  for (int i = 0; i < 100; ++i) {
    const int64_t before = CurrentThreadKernelCpuNanos();
    const int64_t read = clock.Read();
    EXPECT_LE(before, read);
    EXPECT_LE(read, CurrentThreadKernelCpuNanos());
  }
  EXPECT_FALSE(clock.has_base());
  EXPECT_EQ(clock.stats().bases, 0u);
}

TEST(FastCpuClockChoiceTest, SaysWhichAndWhy) {
  const FastCpuClockChoice off = ChooseFastCpuClock(0);
  EXPECT_EQ(off.config.mode, FastCpuClockMode::kOff);
  EXPECT_THAT(off.reason, HasSubstr("clock_gettime: the one without"));
  const FastCpuClockChoice choice = ChooseFastCpuClock(kMaxAge);
  if (choice.config.mode == FastCpuClockMode::kOff) {
    EXPECT_THAT(choice.reason, HasSubstr("clock_gettime: "));
    EXPECT_EQ(choice.config.max_age_ticks, 0u);
  } else {
    EXPECT_THAT(choice.reason, HasSubstr("at most 100 us old"));
    EXPECT_GT(choice.config.max_age_ticks, 0u);
    EXPECT_GT(choice.config.multiplier, 0u);
  }
}

TEST(TscMultiplierTest, IsTheRateOfTwoSamples) {
  constexpr uint32_t kOne = 1u << kTscShift;
  EXPECT_EQ(TscMultiplier({1000, 500}, {3000, 2500}), kOne);  // 1 GHz
  EXPECT_EQ(TscMultiplier({0, 0}, {4'000'000, 1'000'000}), kOne / 4);
  // Too slow, or nonsense.
  EXPECT_EQ(TscMultiplier({0, 0}, {100, 1000}), 0u);
  EXPECT_EQ(TscMultiplier({10, 0}, {10, 1000}), 0u);
  EXPECT_EQ(TscMultiplier({10, 10}, {20, 10}), 0u);
  EXPECT_EQ(TscMultiplier({20, 0}, {10, 1000}), 0u);
}

}  // namespace
}  // namespace stillpoint
