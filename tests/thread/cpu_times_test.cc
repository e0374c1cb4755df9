// CPU time of threads: their own, others', and of those that are gone.

#include "runtime/thread/cpu_times.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/os/cpu_clock.h"
#include "runtime/os/fast_cpu_clock.h"
#include "runtime/os/fast_cpu_clock_choice.h"
#include "runtime/os/os_thread.h"
#include "runtime/stillpoint.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/thread_record.h"
#include "tests/base/sanitizers.h"
#include "tests/os/seccomp_filter.h"
#include "tests/os/thread_watch.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::AwaitGone;
using testing::AwaitState;
using ::testing::HasSubstr;
using testing::kAsan;
using testing::kTsan;
using testing::MakeRuntime;
using testing::Rounds;
using testing::RunDenied;
using testing::StartOrFail;
using ::testing::StartsWith;

ThreadCpuTimes TimesOf(const ThreadHandle& handle) {
  const absl::StatusOr<ThreadCpuTimes> times = handle.GetCpuTimes();
  EXPECT_TRUE(times.ok()) << times.status();
  return times.ok() ? *times : ThreadCpuTimes();
}

void ExpectConsistent(const CpuTimes& times) {
  EXPECT_GE(times.user, 0);
  EXPECT_LE(times.user, times.total);
  EXPECT_GE(times.system(), 0);
  EXPECT_GE(times.total, times.raw_total);
  EXPECT_LE(times.user, times.raw_user);
}

// The later reading of one thread.
void ExpectNotBefore(const ThreadCpuTimes& now, const ThreadCpuTimes& before) {
  EXPECT_GE(now.total, before.total);
  EXPECT_GE(now.user, before.user);
  EXPECT_GE(now.raw_total, before.raw_total);
  EXPECT_GE(now.raw_user, before.raw_user);
  EXPECT_GE(now.elapsed, before.elapsed);
  EXPECT_GE(now.is_final, before.is_final);
}

void ExpectSame(const ThreadCpuTimes& a, const ThreadCpuTimes& b) {
  EXPECT_EQ(a.total, b.total);
  EXPECT_EQ(a.user, b.user);
  EXPECT_EQ(a.raw_total, b.raw_total);
  EXPECT_EQ(a.raw_user, b.raw_user);
  EXPECT_EQ(a.elapsed, b.elapsed);
  EXPECT_EQ(a.is_final, b.is_final);
}

class CpuTimesTest : public ::testing::Test {
 protected:
  CpuTimesTest() : runtime_(MakeRuntime()) {}
  Runtime& runtime() { return *runtime_; }

  ThreadHandle StartParked(const std::string& name) {
    const ThreadHandle handle =
        StartOrFail(runtime(), name, [] { EXPECT_TRUE(Park().ok()); });
    AwaitState(runtime(), name, ThreadState::kBlocked);
    return handle;
  }
  // Ends it, and waits until its slot is free.
  void EndParked(const ThreadHandle& handle) {
    const pid_t tid = handle.slot()->tid();
    EXPECT_TRUE(handle.Unpark());
    EXPECT_TRUE(handle.Join().ok());
    AwaitGone(tid);
  }

  std::unique_ptr<Runtime> runtime_;
};

// --- The calling thread. ---

void UseOwnClocks() {
  int64_t fast = CurrentThreadCpuNanos();
  absl::StatusOr<ThreadCpuTimes> before = CurrentThreadCpuTimes();
  ASSERT_TRUE(before.ok()) << before.status();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = CurrentThreadCpuNanos();
    EXPECT_GE(now, fast);
    const absl::StatusOr<ThreadCpuTimes> times = CurrentThreadCpuTimes();
    ASSERT_TRUE(times.ok());
    ExpectConsistent(*times);
    ExpectNotBefore(*times, *before);
    EXPECT_FALSE(times->is_final);
    EXPECT_GE(times->total, now) << "the pair and the clock are one";
    fast = CurrentThreadCpuNanos();
    EXPECT_GE(fast, times->total);
    before = times;
    for (const CpuClock clock : {CpuClock::kTotal, CpuClock::kUser}) {
      const absl::StatusOr<int64_t> one = CurrentThreadCpuNanos(clock);
      ASSERT_TRUE(one.ok());
      EXPECT_GE(*one,
                clock == CpuClock::kUser ? times->raw_user : times->raw_total);
    }
  }
}

TEST_F(CpuTimesTest, OwnInEveryState) {
  UseOwnClocks();  // unattached
  StartOrFail(runtime(), "own",
              [] {
                UseOwnClocks();
                ManagedScope managed;
                UseOwnClocks();
                BlockedScope blocked;
                UseOwnClocks();
              })
      .Join()
      .IgnoreError();
}

TEST_F(CpuTimesTest, OfTheProcessHoldThoseOfItsThreads) {
  const absl::StatusOr<ThreadCpuTimes> own = CurrentThreadCpuTimes();
  const absl::StatusOr<CpuTimes> process = ProcessCpuTimes();
  ASSERT_TRUE(own.ok() && process.ok());
  ExpectConsistent(*process);
  EXPECT_GE(process->raw_total, own->raw_total);
  EXPECT_GE(*ProcessCpuNanos(CpuClock::kTotal), process->raw_total);
  EXPECT_GE(*ProcessCpuNanos(CpuClock::kUser), process->raw_user);
}

TEST_F(CpuTimesTest, TheRuntimeSaysWhichClock) {
  EXPECT_THAT(std::string(runtime().cpu_clock_description()),
              StartsWith("CPU clock: "));
  Options options = testing::TestOptions();
  options.cpu_clock_max_age = std::chrono::nanoseconds(0);
  const std::unique_ptr<Runtime> off = MakeRuntime(options);
  EXPECT_THAT(std::string(off->cpu_clock_description()),
              HasSubstr("without a system call is off"));
  StartOrFail(*off, "off",
              [] {
                CurrentThreadCpuNanos();
                EXPECT_EQ(CurrentThreadCpuClockStats().bases, 0u);
              })
      .Join()
      .IgnoreError();
}

TEST_F(CpuTimesTest, RefusedSystemCallsAreAStatus) {
  const ThreadHandle parked = StartParked("parked");
  if (!RunDenied({{SYS_clock_gettime, EPERM}}, [&] {
        EXPECT_TRUE(absl::IsUnavailable(CurrentThreadCpuTimes().status()));
        EXPECT_TRUE(absl::IsUnavailable(ProcessCpuTimes().status()));
        const absl::Status other = parked.GetCpuTimes().status();
        EXPECT_TRUE(absl::IsUnavailable(other)) << other;
        EXPECT_THAT(std::string(other.message()), HasSubstr("seccomp"));
      })) {
    EndParked(parked);
    GTEST_SKIP() << "this kernel has no seccomp filters";
  }
  EndParked(parked);
}

// --- Where a base is kept. ---

// A registry whose clock is used in Managed only, whatever this kernel does.
class ManagedOnlyTest : public CpuTimesTest {
 protected:
  void SetUp() override {
    const FastCpuClockChoice choice = ChooseFastCpuClock(100'000);
    if (choice.config.mode == FastCpuClockMode::kOff) {
      GTEST_SKIP() << choice.reason;
    }
    RegistryOptions options;
    options.cpu_clock = choice.config;
    options.cpu_clock.mode = FastCpuClockMode::kManagedOnly;
    registry_ = std::make_shared<Registry>(options);
  }

  std::shared_ptr<Registry> registry_;
};

bool HasBase() { return Thread::CurrentOrDie().cpu_clock().has_base(); }

TEST_F(ManagedOnlyTest, EveryWayOutOfManagedDropsTheBase) {
  ASSERT_TRUE(AttachCurrentThread(*registry_, "attached").ok());
  CurrentThreadCpuNanos();
  EXPECT_FALSE(HasBase()) << "Native";
  {
    ManagedScope managed;
    CurrentThreadCpuNanos();
    EXPECT_TRUE(HasBase());
    {
      NativeScope native;
      EXPECT_FALSE(HasBase());
      CurrentThreadCpuNanos();
      EXPECT_FALSE(HasBase());
    }
    EXPECT_FALSE(HasBase()) << "the first charge asks the kernel";
    CurrentThreadCpuNanos();
    EXPECT_TRUE(HasBase());
    {
      BlockedScope blocked;
      EXPECT_FALSE(HasBase());
    }
    CurrentThreadCpuNanos();
    EXPECT_TRUE(HasBase());
    EXPECT_TRUE(absl::IsDeadlineExceeded(
        Park(Deadline::After(std::chrono::nanoseconds(1)))));
    EXPECT_FALSE(HasBase());
    CurrentThreadCpuNanos();
    EXPECT_TRUE(HasBase());
  }
  EXPECT_FALSE(HasBase());
  ASSERT_TRUE(DetachCurrentThread(*registry_).ok());
}

TEST_F(CpuTimesTest, AWaitInASafeStateDropsTheBaseToo) {
  StartOrFail(runtime(), "native",
              [] {
                CurrentThreadCpuNanos();
                EXPECT_TRUE(absl::IsDeadlineExceeded(
                    Park(Deadline::After(std::chrono::nanoseconds(1)))));
                EXPECT_FALSE(HasBase());
              })
      .Join()
      .IgnoreError();
}

TEST_F(CpuTimesTest, APollThatStopsDropsTheBase) {
  std::atomic<bool> running{false};
  std::atomic<bool> stopped{false};
  const ThreadHandle poller = StartOrFail(runtime(), "poller", [&] {
    Thread& self = Thread::CurrentOrDie();
    ManagedScope managed(self);
    running.store(true);
    while (!stopped.load()) {
      CurrentThreadCpuNanos();
      Poll(self);
    }
  });
  Await([&] { return running.load(); });
  EXPECT_TRUE(
      runtime()
          .AtSafepoint("look",
                       [&](World& world) {
                         world.ForEachThread([&](const auto& thread) {
                           EXPECT_FALSE(
                               thread.handle().slot()->cpu_clock().has_base());
                         });
                         stopped.store(true);
                       })
          .ok());
  EXPECT_TRUE(poller.Join().ok());
}

// --- Other threads, alive and gone. ---

TEST_F(CpuTimesTest, OfASleeperStandStillWhileTimeGoesOn) {
  const ThreadHandle parked = StartParked("parked");
  testing::AwaitSleeping(parked.slot()->tid());
  const ThreadCpuTimes first = TimesOf(parked);
  ThreadCpuTimes second = TimesOf(parked);
  ExpectConsistent(first);
  EXPECT_GT(first.total, 0);
  EXPECT_EQ(second.total, first.total);
  EXPECT_EQ(second.user, first.user);
  EXPECT_FALSE(second.is_final);
  Await([&] { return TimesOf(parked).elapsed > first.elapsed; });
  EXPECT_EQ(*parked.CpuNanos(CpuClock::kTotal), first.raw_total);
  EXPECT_EQ(*parked.CpuNanos(CpuClock::kUser), first.raw_user);
  EndParked(parked);
}

TEST_F(CpuTimesTest, OfASpinnerGrowInUserMode) {
  std::atomic<bool> stop{false};
  const ThreadHandle spinner = StartOrFail(runtime(), "spinner", [&] {
    while (!stop.load()) {
    }
  });
  ThreadCpuTimes before = TimesOf(spinner);
  const ThreadCpuTimes first = before;
  Await([&] {
    const ThreadCpuTimes now = TimesOf(spinner);
    ExpectConsistent(now);
    ExpectNotBefore(now, before);
    before = now;
    return now.total > first.total && now.user > first.user;
  });
  stop.store(true);
  EXPECT_TRUE(spinner.Join().ok());
  ExpectNotBefore(TimesOf(spinner), before);
}

TEST_F(CpuTimesTest, TheLastValuesSurviveTheExit) {
  std::atomic<int64_t> own{0};
  const ThreadHandle thread = StartOrFail(runtime(), "short", [&] {
    ManagedScope managed;
    for (int i = 0; i < 1000; ++i) own.store(CurrentThreadCpuNanos());
  });
  const ThreadCpuTimes before = TimesOf(thread);
  ASSERT_TRUE(thread.Join().ok());
  const ThreadCpuTimes last = TimesOf(thread);
  ExpectConsistent(last);
  ExpectNotBefore(last, before);
  EXPECT_TRUE(last.is_final);
  EXPECT_GT(last.elapsed, 0);
  EXPECT_GE(last.total, own.load()) << "what it has been told itself";
  ExpectSame(TimesOf(thread), last);
  EXPECT_EQ(*thread.CpuNanos(CpuClock::kTotal), last.raw_total);
  EXPECT_EQ(*thread.CpuNanos(CpuClock::kUser), last.raw_user);
  runtime_ = nullptr;
  ExpectSame(TimesOf(thread), last);
}

TEST_F(CpuTimesTest, AnAttachedThreadKeepsItsOnesAfterDetaching) {
  ASSERT_TRUE(runtime().AttachCurrentThread("guest").ok());
  const ThreadHandle handle = CurrentThreadHandle();
  const ThreadCpuTimes attached = TimesOf(handle);
  EXPECT_FALSE(attached.is_final);
  ASSERT_TRUE(runtime().DetachCurrentThread().ok());
  const ThreadCpuTimes last = TimesOf(handle);
  EXPECT_TRUE(last.is_final);
  ExpectNotBefore(last, attached);
  const int64_t since = CurrentThreadKernelCpuNanos();
  while (CurrentThreadKernelCpuNanos() == since) {
  }
  ExpectSame(TimesOf(handle), last);
}

TEST_F(CpuTimesTest, AReusedSlotSaysSo) {
  const ThreadHandle first = StartParked("first");
  EndParked(first);
  EXPECT_TRUE(TimesOf(first).is_final);
  const ThreadHandle second = StartParked("second");
  ASSERT_EQ(second.slot(), first.slot());
  for (const absl::Status& status :
       {first.GetCpuTimes().status(),
        first.CpuNanos(CpuClock::kTotal).status()}) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("right after Join"));
  }
  EXPECT_FALSE(TimesOf(second).is_final);
  EndParked(second);
  EXPECT_TRUE(absl::IsNotFound(first.GetCpuTimes().status()));
  EXPECT_TRUE(TimesOf(second).is_final);
}

TEST_F(CpuTimesTest, AnEmptyHandleSaysSo) {
  EXPECT_TRUE(absl::IsNotFound(ThreadHandle().GetCpuTimes().status()));
  EXPECT_TRUE(
      absl::IsNotFound(ThreadHandle().CpuNanos(CpuClock::kUser).status()));
}

TEST_F(CpuTimesTest, AThreadThatHasNotBegunHasUsedNothing) {
  const auto registry = std::make_shared<Registry>(RegistryOptions());
  const absl::StatusOr<Thread*> thread = registry->Admit({.name = "new"});
  ASSERT_TRUE(thread.ok());
  const ThreadHandle handle(registry, **thread,
                            (*thread)->record().generation.load());
  registry->Publish(**thread, ThreadState::kNew);
  const ThreadCpuTimes times = TimesOf(handle);
  EXPECT_EQ(times.total, 0);
  EXPECT_EQ(times.user, 0);
  EXPECT_FALSE(times.is_final);
  EXPECT_EQ(*handle.CpuNanos(CpuClock::kTotal), 0);
  // It could not be created: there is no last value, and not a false one.
  registry->Leave(**thread);
  registry->Retire(**thread);
  const absl::Status gone = handle.GetCpuTimes().status();
  EXPECT_TRUE(absl::IsNotFound(gone)) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr("never ran"));
}

// An attached thread that ends without running anything of libc's: the kernel
// knows no such thread, and the slot stays taken.
TEST_F(CpuTimesTest, AThreadThatVanishedIsAStatus) {
  if (kAsan || kTsan) GTEST_SKIP() << "sanitizers have to see a thread's end";
  const auto registry = std::make_shared<Registry>(RegistryOptions());
  std::atomic<bool> ready{false};
  ThreadHandle handle;
  pid_t tid = 0;
  std::thread thread([&] {
    EXPECT_TRUE(AttachCurrentThread(*registry, "vanishing").ok());
    handle = CurrentThreadHandle();
    tid = CurrentTid();
    ready.store(true);
    syscall(SYS_exit, 0);
  });
  Await([&] { return ready.load(); });
  thread.join();  // by the word that the kernel clears
  AwaitGone(tid);
  const absl::Status gone = handle.GetCpuTimes().status();
  EXPECT_TRUE(absl::IsUnavailable(gone)) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr("without leaving"));
  // For the registry's destructor: somebody has to take it out.
  registry->Leave(*handle.slot());
  registry->Retire(*handle.slot());
}

// --- Listings. ---

TEST_F(CpuTimesTest, AreInASnapshotAlsoOfThreadsThatEnd) {
  const ThreadHandle parked = StartParked("parked");
  const ThreadSnapshot snapshot = runtime().Threads();
  ASSERT_EQ(snapshot.size(), 1u);
  const PinnedThread& pinned = *snapshot.begin();
  const absl::StatusOr<ThreadCpuTimes> alive = pinned.GetCpuTimes();
  ASSERT_TRUE(alive.ok()) << alive.status();
  EXPECT_FALSE(alive->is_final);
  EXPECT_GT(alive->total, 0);
  EXPECT_GT(alive->elapsed, 0);
  EndParked(parked);
  const ThreadHandle next = StartParked("next");
  const absl::StatusOr<ThreadCpuTimes> last = pinned.GetCpuTimes();
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_TRUE(last->is_final);
  ExpectNotBefore(*last, *alive);
  ExpectSame(TimesOf(parked), *last);
  EndParked(next);
}

TEST_F(CpuTimesTest, AreInTheStoppedWorld) {
  const ThreadHandle parked = StartParked("parked");
  const ThreadCpuTimes before = TimesOf(parked);
  int seen = 0;
  EXPECT_TRUE(
      runtime()
          .AtSafepoint("look",
                       [&](World& world) {
                         world.ForEachThread([&](const StoppedThread& thread) {
                           const absl::StatusOr<ThreadCpuTimes> times =
                               thread.GetCpuTimes();
                           ASSERT_TRUE(times.ok()) << times.status();
                           ExpectConsistent(*times);
                           ExpectNotBefore(*times, before);
                           ++seen;
                         });
                       })
          .ok());
  EXPECT_EQ(seen, 1);
  EndParked(parked);
}

// --- Threads that come and go while others look (incident H6). ---

TEST_F(CpuTimesTest, InAStormOfStartsAndExits) {
  std::atomic<bool> stop{false};
  std::atomic<int> ended{0};
  // The latest threads, for the readers.
  constexpr int kShown = 8;
  std::mutex mutex;
  ThreadHandle shown[kShown];  // guarded by mutex
  std::vector<std::thread> starters;
  for (int s = 0; s < 2; ++s) {
    starters.emplace_back([&, s] {
      for (int i = s; !stop.load(); i += 2) {
        const ThreadHandle handle =
            StartOrFail(runtime(), "short", [] { CurrentThreadCpuNanos(); });
        {
          std::lock_guard<std::mutex> lock(mutex);
          shown[i % kShown] = handle;
        }
        if (i % 4 < 2) {
          EXPECT_TRUE(handle.Join().ok());
        }
        ended.fetch_add(1);
      }
    });
  }
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      while (!stop.load()) {
        for (const ThreadHandle& slot : shown) {
          ThreadHandle handle;
          {
            std::lock_guard<std::mutex> lock(mutex);
            handle = slot;
          }
          if (handle.slot() == nullptr) continue;
          absl::StatusOr<ThreadCpuTimes> before = ThreadCpuTimes();
          for (int i = 0; i < 10; ++i) {
            const bool was_over = !handle.alive();
            const absl::StatusOr<ThreadCpuTimes> now = handle.GetCpuTimes();
            if (!now.ok()) {
              ASSERT_TRUE(absl::IsNotFound(now.status())) << now.status();
              ASSERT_FALSE(handle.alive());
              break;
            }
            EXPECT_GE(now->is_final, was_over);
            ExpectConsistent(*now);
            ExpectNotBefore(*now, *before);
            if (before->is_final) ExpectSame(*now, *before);
            before = now;
          }
        }
      }
    });
  }
  Await([&] { return ended.load() >= Rounds(4000); });
  stop.store(true);
  for (std::thread& thread : starters) thread.join();
  for (std::thread& thread : readers) thread.join();
}

// --- A kernel id that is given out again (incident H7). ---

bool SetLastId(pid_t tid) {
  FILE* file = fopen("/proc/sys/kernel/ns_last_pid", "w");
  if (file == nullptr) return false;
  const bool printed = fprintf(file, "%d", tid) > 0;
  return fclose(file) == 0 && printed;
}

TEST_F(CpuTimesTest, AReusedKernelIdIsNotTakenForTheOldThread) {
  // Two slots, so that the second thread has another one than the first.
  const ThreadHandle first = StartParked("first");
  const pid_t tid = first.slot()->tid();
  const ThreadSnapshot pinned = runtime().Threads();
  EndParked(first);
  const ThreadCpuTimes last = TimesOf(first);
  std::atomic<bool> stop{false};
  bool reused = false;
  for (int i = 0; i < 1000 && !reused; ++i) {
    if (!SetLastId(tid - 1)) {
      GTEST_SKIP() << "may not write /proc/sys/kernel/ns_last_pid";
    }
    stop.store(false);
    const ThreadHandle second = StartOrFail(runtime(), "second", [&] {
      while (!stop.load()) {
      }
    });
    AwaitState(runtime(), "second", ThreadState::kNative);
    ASSERT_NE(second.slot(), first.slot());
    if (second.slot()->tid() == tid) {
      reused = true;
      // The new one is far ahead; the old one's time is its own.
      Await([&] { return TimesOf(second).total > 2 * last.total; });
      ExpectSame(TimesOf(first), last);
      ExpectSame(*pinned.begin()->GetCpuTimes(), last);
    }
    stop.store(true);
    EXPECT_TRUE(second.Join().ok());
  }
  if (!reused) GTEST_SKIP() << "other processes took the id each time";
}

// --- fork ---

TEST_F(CpuTimesTest, InTheChildOfAFork) {
  const ThreadHandle parked = StartParked("parked");
  ASSERT_TRUE(runtime().AttachCurrentThread("forker").ok());
  const int64_t parent = CurrentThreadCpuNanos();
  const absl::StatusOr<pid_t> child = runtime().Fork();
  ASSERT_TRUE(child.ok()) << child.status();
  if (*child == 0) {
    if (CurrentThreadCpuNanos() > *CurrentThreadCpuNanos(CpuClock::kTotal)) {
      _exit(1);
    }
    // A message is made on the heap, which g++'s ASan does not prepare.
    if (kAsan) _exit(0);
    _exit(absl::IsNotFound(parked.GetCpuTimes().status()) ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(*child, &status, 0), *child);
  EXPECT_EQ(status, 0);
  EXPECT_GE(CurrentThreadCpuNanos(), parent);
  ASSERT_TRUE(runtime().DetachCurrentThread().ok());
  EndParked(parked);
}

// The forking thread is attached in the child as well, and what it was told of
// the parent's time is not the child's: with the clock, and without it.
TEST_F(CpuTimesTest, InTheChildOfAPlainFork) {
  for (const std::chrono::nanoseconds max_age :
       {Options().cpu_clock_max_age, std::chrono::nanoseconds(0)}) {
    Options options = testing::TestOptions();
    options.cpu_clock_max_age = max_age;
    const std::unique_ptr<Runtime> own = MakeRuntime(options);
    AttachScope attached(*own);
    ASSERT_TRUE(attached.status().ok());
    // More than the child will use before it reads.
    constexpr int64_t kMuch = 50'000'000;
    while (CurrentThreadCpuNanos() < kMuch) {
    }
    ASSERT_GE(CurrentThreadCpuTimes()->total, kMuch);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const absl::StatusOr<ThreadCpuTimes> times = CurrentThreadCpuTimes();
      _exit(times.ok() && times->total == times->raw_total &&
                    times->total <= *CurrentThreadCpuNanos(CpuClock::kTotal)
                ? 0
                : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << max_age.count();
    EXPECT_GE(CurrentThreadCpuTimes()->total, kMuch);
  }
}

}  // namespace
}  // namespace stillpoint
