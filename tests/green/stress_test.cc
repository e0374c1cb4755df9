// Storms: green and native threads that start, end, join, park, wake,
// interrupt, sleep, shake hands and stop the world, all at once.

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "tests/base/sanitizers.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using ::testing::HasSubstr;
using testing::IsInState;
using testing::kAsan;
using testing::kTsan;
using testing::MakeRuntime;
using testing::Rounds;
using testing::StartGreenOrFail;
using testing::StartOrFail;

Options StormOptions(const testing::Configuration& configuration) {
  Options options = testing::TestOptions(configuration);
  options.carriers = 2;
  options.time_slice = std::chrono::microseconds(100);
  return options;
}

class GreenStressTest : public testing::RuntimeTest {
 protected:
  void SetUp() override { Make(StormOptions(GetParam())); }
};
STILLPOINT_IN_ALL_CONFIGURATIONS(GreenStressTest);

uint64_t Next(uint64_t& seed) {
  seed = seed * 6364136223846793005 + 1442695040888963407;
  return seed >> 33;
}

// What each of the threads in a storm does: one thing after another.
class Storm {
 public:
  Storm(Runtime& runtime, StopCanary& canary, ThreadLocalSlot slot)
      : runtime_(runtime), canary_(canary), slot_(slot) {}

  void Run(int id, int rounds) {
    uint64_t seed = static_cast<uint64_t>(id) + 1;
    Thread& self = Thread::CurrentOrDie();
    self.set_local(slot_, new uint64_t(seed));
    for (int round = 0; round < rounds; ++round) DoOne(self, seed);
    // Its own value, whatever has run on its carrier meanwhile.
    EXPECT_EQ(*static_cast<uint64_t*>(self.local(slot_)),
              static_cast<uint64_t>(id) + 1);
  }

 private:
  void Work(Thread& self) {
    ManagedScope managed(self);
    for (int i = 0; i < 20; ++i) {
      { const StopCanary::Work work(canary_); }
      Poll(self);
    }
  }

  void DoOne(Thread& self, uint64_t& seed) {
    switch (Next(seed) % 8) {
      case 0: {
        const auto kind =
            Next(seed) % 8 == 0 ? ThreadKind::kNative : ThreadKind::kGreen;
        absl::StatusOr<ThreadHandle> child = runtime_.Start(
            {.kind = kind}, [this] { Work(Thread::CurrentOrDie()); });
        ASSERT_TRUE(child.ok()) << child.status();
        if (Next(seed) % 2 == 0) child->Interrupt();
        while (absl::IsCancelled(child->Join())) {
        }
        break;
      }
      case 1: {
        // Woken by the child, by an interrupt, or by the time.
        const ThreadHandle me = CurrentThreadHandle();
        const bool interrupts = Next(seed) % 2 == 0;
        absl::StatusOr<ThreadHandle> waker = runtime_.Start(
            {.kind = ThreadKind::kGreen},
            [me, interrupts] { interrupts ? me.Interrupt() : me.Unpark(); });
        ASSERT_TRUE(waker.ok()) << waker.status();
        ManagedScope managed(self);
        (void)Park(
            Deadline::After(std::chrono::nanoseconds(Next(seed) % 100'000)));
        while (absl::IsCancelled(waker->Join())) {
        }
        break;
      }
      case 2:
        (void)Sleep(std::chrono::nanoseconds(Next(seed) % 100'000));
        break;
      case 3: {
        ManagedScope managed(self);
        for (int i = 0; i < 10; ++i) Yield();
        break;
      }
      case 4:
        (void)runtime_.Handshake(CurrentThreadHandle(), "self", [](Thread&) {});
        (void)runtime_.HandshakeAll("all", [](Thread&) {});
        break;
      case 5:
        EXPECT_TRUE(runtime_
                        .AtSafepoint("stop",
                                     [this](World& world) {
                                       canary_.Check();
                                       world.ForEachThread(
                                           [](const StoppedThread&) {});
                                     })
                        .ok());
        break;
      case 6: {
        const AttachScope nested(runtime_, "nested");
        EXPECT_TRUE(nested.status().ok()) << nested.status();
        Work(self);
        break;
      }
      default:
        Work(self);
    }
  }

  Runtime& runtime_;
  StopCanary& canary_;
  const ThreadLocalSlot slot_;
};

std::atomic<int> destroyed{0};

void DestroyLocal(void* value) {
  delete static_cast<uint64_t*>(value);
  destroyed.fetch_add(1);
}

void RunStorm(Runtime& runtime, StopCanary& canary) {
  destroyed.store(0);
  const absl::StatusOr<ThreadLocalSlot> slot =
      runtime.CreateThreadLocalSlot(&DestroyLocal);
  ASSERT_TRUE(slot.ok()) << slot.status();
  Storm storm(runtime, canary, *slot);
  constexpr int kThreads = 12;
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < kThreads; ++i) {
    const auto body = [&storm, i] { storm.Run(i, Rounds(60)); };
    threads.push_back(i % 4 == 3 ? StartOrFail(runtime, "native", body)
                                 : StartGreenOrFail(runtime, "green", body));
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(runtime.ThreadCount(), 0u);
  EXPECT_EQ(destroyed.load(), kThreads);
}

TEST_P(GreenStressTest, EverythingAtOnce) { RunStorm(runtime(), canary()); }

TEST_P(GreenStressTest, EverythingAtOnceWithMigration) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "migration is for x86-64";
#endif
  if (kAsan || kTsan) {
    GTEST_SKIP() << "instrumented code keeps thread-local addresses";
  }
  Options options = StormOptions(GetParam());
  options.migrate_green_threads = true;
  Make(options);
  RunStorm(runtime(), canary());
}

// Many at a time, all parked at once: as many as sanitizers are to be clean
// with.
TEST_P(GreenStressTest, ManyParkedThreads) {
  if (GetParam().protocol != StartProtocol::kOutside) GTEST_SKIP();
  const int count = kTsan ? 2'000 : 10'000;
  std::vector<ThreadHandle> threads;
  threads.reserve(static_cast<size_t>(count));
  std::atomic<int> parked{0};
  for (int i = 0; i < count; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "", [&] {
      ManagedScope managed;
      parked.fetch_add(1);
      EXPECT_TRUE(Park().ok());
    }));
  }
  Await([&] { return parked.load() == count; });
  EXPECT_TRUE(runtime()
                  .AtSafepoint("count",
                               [&](World& world) {
                                 canary().Check();
                                 EXPECT_EQ(world.thread_count(),
                                           static_cast<size_t>(count));
                               })
                  .ok());
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Unpark());
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
}

// The waker, an interrupt and the deadline race for each wait: each ends once,
// for a reason that was there, and none is lost.
TEST_P(GreenStressTest, WakersAndDeadlinesRace) {
  std::atomic<bool> done{false};
  const ThreadHandle waits = StartGreenOrFail(runtime(), "waits", [&] {
    for (int round = 0; round < Rounds(3'000); ++round) {
      const absl::Status parked =
          Park(Deadline::After(std::chrono::microseconds(round % 100)));
      EXPECT_TRUE(parked.ok() || absl::IsCancelled(parked) ||
                  absl::IsDeadlineExceeded(parked))
          << parked;
    }
    done.store(true);
  });
  const auto wake = [&] {
    while (!done.load()) {
      waits.Unpark();
      (void)Sleep(std::chrono::microseconds(30));
      waits.Interrupt();
      Yield();
    }
  };
  const ThreadHandle green = StartGreenOrFail(runtime(), "green waker", wake);
  const ThreadHandle native = StartOrFail(runtime(), "native waker", wake);
  EXPECT_TRUE(waits.Join().ok());
  EXPECT_TRUE(green.Join().ok());
  EXPECT_TRUE(native.Join().ok());
}

TEST_P(GreenStressTest, SeveralRuntimesAtOnce) {
  constexpr int kRuntimes = 3;
  for (int round = 0; round < Rounds(10); ++round) {
    std::vector<std::unique_ptr<Runtime>> runtimes;
    for (int i = 0; i < kRuntimes; ++i) {
      runtimes.push_back(MakeRuntime(StormOptions(GetParam())));
    }
    std::vector<ThreadHandle> threads;
    for (int i = 0; i < 30; ++i) {
      Runtime& mine = *runtimes[static_cast<size_t>(i % kRuntimes)];
      // Wakes one of the previous runtime.
      const ThreadHandle before =
          threads.empty() ? ThreadHandle() : threads.back();
      threads.push_back(StartGreenOrFail(mine, "", [&mine, before] {
        ManagedScope managed;
        before.Unpark();
        (void)Park(Deadline::After(std::chrono::milliseconds(1)));
        EXPECT_TRUE(mine.AtSafepoint("stop", [](World&) {}).ok());
      }));
    }
    for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
    for (std::unique_ptr<Runtime>& runtime : runtimes) runtime = nullptr;
  }
}

// Shutdown ends the waits; who does not end is named.
TEST_P(GreenStressTest, ShutdownEndsWaitsAndNamesWhoStays) {
  std::atomic<bool> let_go{false};
  std::atomic<int> interrupted{0};
  for (int i = 0; i < 5; ++i) {
    StartGreenOrFail(runtime(), "parked", [&] {
      if (absl::IsCancelled(Park())) interrupted.fetch_add(1);
    });
    StartGreenOrFail(runtime(), "sleeping", [&] {
      if (absl::IsCancelled(Sleep(Deadline::Infinite()))) {
        interrupted.fetch_add(1);
      }
    });
  }
  // On it one carrier stays for a while; the others do not need that one.
  const ThreadHandle stays = StartGreenOrFail(
      runtime(), "stays", [&] { Await([&] { return let_go.load(); }); });
  Await([&] { return IsInState(runtime(), "stays", ThreadState::kNative); });
  const absl::Status early =
      runtime().Shutdown(Deadline::After(std::chrono::milliseconds(20)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(early)) << early;
  EXPECT_THAT(std::string(early.message()), HasSubstr("stays (Native"));
  let_go.store(true);
  const absl::Status late = runtime().Shutdown(Deadline::Infinite());
  EXPECT_TRUE(late.ok()) << late;
  EXPECT_EQ(interrupted.load(), 10);
}

// Children of a fork while green threads run and park; the fork itself is no
// green thread's to make.
TEST_P(GreenStressTest, ForksWhileGreenThreadsRun) {
  std::atomic<bool> stop{false};
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 8; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "busy", [&, i] {
      Thread& self = Thread::CurrentOrDie();
      while (!stop.load()) {
        ManagedScope managed(self);
        Poll(self);
        if (i % 2 == 0) Yield();
        if (i % 3 == 0) (void)Sleep(std::chrono::microseconds(50));
      }
    }));
  }
  const ThreadHandle forks = StartGreenOrFail(runtime(), "forks", [&] {
    const absl::StatusOr<pid_t> child = runtime().Fork();
    if (child.ok() && *child == 0) _exit(1);
    EXPECT_TRUE(absl::IsFailedPrecondition(child.status())) << child.status();
  });
  EXPECT_TRUE(forks.Join().ok());
  for (int round = 0; round < Rounds(20); ++round) {
    const absl::StatusOr<pid_t> child = runtime().Fork();
    ASSERT_TRUE(child.ok()) << child.status();
    if (*child == 0) {
      // No green thread can be started here, and nothing hangs.
      const bool refused =
          !runtime().Start({.kind = ThreadKind::kGreen}, [] {}).ok();
      const bool ended = runtime().Shutdown(Deadline::Infinite()).ok();
      _exit(refused && ended && runtime().ThreadCount() == 0 ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(*child, &status, 0), *child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop.store(true);
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
}

}  // namespace
}  // namespace stillpoint
