// CPU time of green threads: what each has used, and that it adds up to what
// their carriers have. Incident H9.

#include "runtime/thread/cpu_times.h"

#include <time.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/green/scheduler.h"
#include "runtime/green/yield.h"
#include "runtime/os/fast_cpu_clock_choice.h"
#include "runtime/safepoint/serve.h"
#include "runtime/thread/fence.h"
#include "runtime/thread/green_cpu_times.h"
#include "runtime/thread/park.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/sleep.h"
#include "tests/base/sanitizers.h"
#include "tests/support/await.h"

namespace stillpoint {
namespace {

using testing::Await;

// Uses so much CPU time of its OS thread, by the kernel's clock.
void Use(std::chrono::nanoseconds amount) {
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
  };
  const int64_t until = now() + amount.count();
  while (now() < until) {
  }
}

void Pause(std::chrono::nanoseconds length) {
  const timespec pause = {0, static_cast<long>(length.count())};
  nanosleep(&pause, nullptr);
}

// By which clock: the kernel's, or the one that counts without it.
class GreenCpuTimesTest : public ::testing::TestWithParam<bool> {
 protected:
  void Make(SchedulerOptions options) {
    RegistryOptions registry_options;
    registry_options.fence = ChooseFence(FencePolicy::kFull)->mode;
    registry_options.serve_poll = &ServePoll;
    if (GetParam()) {
      registry_options.cpu_clock = ChooseFastCpuClock(100'000).config;
    }
    registry_ = std::make_shared<Registry>(registry_options);
    scheduler_ = std::make_shared<Scheduler>(*registry_, std::move(options));
    registry_->KeepToTheEnd(scheduler_);
  }
  void TearDown() override {
    registry_->BeginClosing();
    EXPECT_TRUE(registry_->AwaitPopulation(0, Deadline::Infinite()));
    EXPECT_TRUE(scheduler_->Stop(Deadline::Infinite()));
  }

  ThreadHandle Start(absl::AnyInvocable<void()> body) {
    absl::StatusOr<ThreadHandle> started =
        scheduler_->Start({.kind = ThreadKind::kGreen}, std::move(body));
    EXPECT_TRUE(started.ok()) << started.status();
    return started.ok() ? *std::move(started) : ThreadHandle();
  }

  static int64_t TotalOf(const ThreadHandle& thread) {
    const absl::StatusOr<ThreadCpuTimes> times = thread.GetCpuTimes();
    EXPECT_TRUE(times.ok()) << times.status();
    return times.ok() ? times->total : 0;
  }

  // The sum of all threads, which have ended, and of the scheduler is what the
  // carriers have used.
  void ExpectThatItAddsUp(const std::vector<ThreadHandle>& threads) {
    int64_t green = 0;
    for (const ThreadHandle& thread : threads) {
      const absl::StatusOr<ThreadCpuTimes> times = thread.GetCpuTimes();
      ASSERT_TRUE(times.ok()) << times.status();
      EXPECT_TRUE(times->is_final);
      green += times->total;
    }
    const double sum = static_cast<double>(green + scheduler_->OwnCpuNanos());
    const double carriers = static_cast<double>(scheduler_->CarrierCpuNanos());
    EXPECT_NEAR(sum / carriers, 1.0, 0.01)
        << "green " << green << ", scheduler " << scheduler_->OwnCpuNanos()
        << ", carriers " << carriers;
  }

  std::shared_ptr<Registry> registry_;
  std::shared_ptr<Scheduler> scheduler_;
};
INSTANTIATE_TEST_SUITE_P(Clocks, GreenCpuTimesTest, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& info) {
                           return info.param ? "fast" : "kernel";
                         });

// Slots are not given to others while these live, so that all last values are
// there: each thread waits for the end of the starts.
TEST_P(GreenCpuTimesTest, AllTimesAddUpToTheCarriers) {
  for (const bool migrate : {false, true}) {
#if !defined(__x86_64__)
    if (migrate) continue;
#endif
    // Instrumented code keeps thread-local addresses across a switch.
    if (migrate && (testing::kAsan || testing::kTsan)) continue;
    if (scheduler_ != nullptr) TearDown();
    Make({.carriers = 2, .migrate = migrate});
    std::vector<ThreadHandle> threads;
    std::atomic<bool> go{false};
    for (int i = 0; i < 20; ++i) {
      threads.push_back(Start([&, i] {
        while (!go.load()) (void)Sleep(std::chrono::milliseconds(1));
        for (int round = 0; round < 20; ++round) {
          Use(std::chrono::microseconds(500 + 37 * i));
          if (i % 3 == 0) Yield();
          if (i % 3 == 1) (void)Sleep(std::chrono::microseconds(10 * i));
          if (i % 5 == 4) Pause(std::chrono::microseconds(50));
        }
      }));
    }
    go.store(true);
    for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
    ExpectThatItAddsUp(threads);
  }
}

// On one carrier: what sleeps in the kernel is not charged for it, and what
// spins is charged for no more than it has used.
TEST_P(GreenCpuTimesTest, TheShareOfOneThatBlocksBesideOneThatSpins) {
  Make({.carriers = 1});
  constexpr std::chrono::milliseconds kSpin(2);
  constexpr int kRounds = 50;
  std::atomic<int64_t> blocked_used{0};
  const ThreadHandle blocks = Start([&] {
    Thread& self = Thread::CurrentOrDie();
    ManagedScope managed(self);
    for (int round = 0; round < kRounds; ++round) {
      {
        const NativeScope native;
        Pause(std::chrono::milliseconds(1));
      }
      Yield();
    }
    blocked_used.store(CurrentThreadCpuTimes()->total);
  });
  const ThreadHandle spins = Start([&] {
    for (int round = 0; round < kRounds; ++round) {
      Use(kSpin);
      Yield();
    }
  });
  EXPECT_TRUE(blocks.Join().ok());
  EXPECT_TRUE(spins.Join().ok());
  const int64_t spun = TotalOf(spins);
  EXPECT_GE(spun, kRounds * std::chrono::nanoseconds(kSpin).count() * 99 / 100);
  EXPECT_GE(TotalOf(blocks), blocked_used.load() * 99 / 100);
  ExpectThatItAddsUp({blocks, spins});
  // All that the carrier has used besides is neither's, so that the first has
  // what is left: far less than it has slept.
  EXPECT_LE(TotalOf(blocks) + spun, scheduler_->CarrierCpuNanos() * 101 / 100);
}

TEST_P(GreenCpuTimesTest, SwitchesAndWaitsForTheCarrierAreCounted) {
  Make({.carriers = 1});
  std::atomic<int> ready{0};
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 2; ++i) {
    threads.push_back(Start([&] {
      ready.fetch_add(1);
      while (ready.load() < 2) Yield();
      for (int round = 0; round < 10; ++round) {
        Use(std::chrono::milliseconds(1));
        Yield();
      }
    }));
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  for (const ThreadHandle& thread : threads) {
    const GreenCounts counts = ReadGreenCounts(*thread.slot());
    EXPECT_GE(counts.switches, 10u);
    // While the other one has used its part, nine times at least.
    EXPECT_GE(counts.queued_nanos, 8'000'000);
  }
}

// Read by others at any moment, it never falls, up to its last value.
TEST_P(GreenCpuTimesTest, NeverFallsForAnybody) {
  for (int round = 0; round < 20; ++round) {
    Make({.carriers = 2});
    std::atomic<bool> stop{false};
    std::vector<ThreadHandle> threads;
    for (int i = 0; i < 4; ++i) {
      threads.push_back(Start([&, i] {
        while (!stop.load()) {
          Use(std::chrono::microseconds(20 * i));
          Yield();
          if (i == 3) (void)Sleep(std::chrono::microseconds(50));
        }
      }));
    }
    std::vector<std::thread> readers;
    for (int i = 0; i < 2; ++i) {
      readers.emplace_back([&] {
        std::vector<int64_t> last(threads.size(), 0);
        for (int look = 0; look < 500; ++look) {
          for (size_t j = 0; j < threads.size(); ++j) {
            const int64_t now = TotalOf(threads[j]);
            EXPECT_GE(now, last[j]);
            last[j] = now;
          }
          if (look == 400) stop.store(true);
        }
        for (size_t j = 0; j < threads.size(); ++j) {
          EXPECT_TRUE(threads[j].Join().ok());
          EXPECT_GE(TotalOf(threads[j]), last[j]);
        }
      });
    }
    for (std::thread& reader : readers) reader.join();
    if (round + 1 < 20) TearDown();
  }
}

}  // namespace
}  // namespace stillpoint
