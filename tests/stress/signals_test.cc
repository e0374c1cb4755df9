// Signals: none of ours, and those of others end no wait.

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/await.h"
#include "tests/support/busy_mutators.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::BusyMutators;
using testing::StartOrFail;
using testing::StopAndCheck;

constexpr LockRank kRank{"signals_test_lock", kFirstEmbedderRank,
                         "waited for under bombardment"};

std::atomic<int> signals_seen{0};
void CountSignal(int) { signals_seen.fetch_add(1, std::memory_order_relaxed); }
// A fault of the test's own must not be taken for a signal that was sent, nor
// come back for ever.
void DieOfFault(int) { _exit(98); }

bool IsFault(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE ||
         signal == SIGILL || signal == SIGABRT || signal == SIGTRAP;
}

class SignalsTest : public testing::RuntimeTest {
 protected:
  void SetUp() override {
    signals_seen.store(0);
    testing::RuntimeTest::SetUp();
  }

  // Everything that a runtime does by default.
  void DoEverything() {
    BusyMutators busy(runtime(), canary(), 2);
    for (int i = 0; i < 10; ++i) {
      StopAndCheck(runtime(), canary());
      const ThreadHandle parked = StartOrFail(
          runtime(), "parked", [] { EXPECT_TRUE(IsInterrupted(Park())); });
      parked.Interrupt();
      EXPECT_TRUE(parked.Join().ok());
      AttachScope attached(runtime(), "guest");
      EXPECT_TRUE(attached.status().ok());
    }
    busy.AwaitProgress();
  }
};
STILLPOINT_IN_ALL_CONFIGURATIONS(SignalsTest);

// Incident G3: the default configuration sends no signals at all.
TEST_P(SignalsTest, NoneAreSent) {
  struct sigaction before[NSIG];
  bool changed[NSIG] = {};
  int handled = 0;
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action = {};
    action.sa_handler = IsFault(signal) ? &DieOfFault : &CountSignal;
    // Refused for SIGKILL, SIGSTOP and those that libc keeps.
    changed[signal] = sigaction(signal, &action, &before[signal]) == 0;
    handled += changed[signal];
  }
  EXPECT_GT(handled, 50);
  // The handlers would notice.
  ASSERT_EQ(raise(SIGUSR2), 0);
  EXPECT_EQ(signals_seen.exchange(0), 1);

  DoEverything();
  End();
  EXPECT_EQ(signals_seen.load(), 0);

  // And none were left on the way: handlers are still those of the embedder.
  for (int signal = 1; signal < NSIG; ++signal) {
    if (!changed[signal]) continue;
    struct sigaction now;
    ASSERT_EQ(sigaction(signal, &before[signal], &now), 0);
    EXPECT_EQ(now.sa_handler, IsFault(signal) ? &DieOfFault : &CountSignal);
  }
}

// Incidents G3 and H3: SIGUSR1 at every waiter, again and again. Nobody comes
// back without what he waits for.
TEST_P(SignalsTest, BombardmentEndsNoWait) {
  struct sigaction action = {};
  struct sigaction before;
  action.sa_handler = &CountSignal;  // and no SA_RESTART: system calls do fail
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  RankedMutex mutex(kRank);
  std::atomic<bool> release{false};
  std::atomic<int> back{0};
  const auto came_back = [&] {
    EXPECT_TRUE(release.load());
    back.fetch_add(1);
  };
  // Holds the mutex, and is joined.
  std::atomic<bool> held{false};
  const ThreadHandle holder = StartOrFail(runtime(), "holder", [&] {
    RankedMutexLock lock(mutex);
    held.store(true);
    Await([&] { return release.load(); });
  });
  Await([&] { return held.load(); });
  std::vector<ThreadHandle> waiters;
  waiters.push_back(StartOrFail(runtime(), "park", [&] {
    ManagedScope managed;
    EXPECT_TRUE(Park().ok());
    came_back();
  }));
  waiters.push_back(StartOrFail(runtime(), "timed park", [&] {
    EXPECT_TRUE(Park(Deadline::After(std::chrono::hours(1))).ok());
    came_back();
  }));
  std::atomic<bool> timed_out{false};
  waiters.push_back(StartOrFail(runtime(), "deadline", [&] {
    const Deadline deadline = Deadline::After(std::chrono::milliseconds(5));
    EXPECT_TRUE(absl::IsDeadlineExceeded(Park(deadline)));
    EXPECT_TRUE(deadline.passed());
    timed_out.store(true);
    EXPECT_TRUE(Park().ok());
    came_back();
  }));
  waiters.push_back(StartOrFail(runtime(), "join", [&] {
    EXPECT_TRUE(holder.Join().ok());
    came_back();
  }));
  waiters.push_back(StartOrFail(runtime(), "mutex", [&] {
    RankedMutexLock lock(mutex);
    came_back();
  }));
  const size_t waiting = waiters.size();
  std::vector<pid_t> tids;
  for (const PinnedThread& thread : runtime().Threads()) {
    Await([&] { return thread.tid() != 0; });
    tids.push_back(thread.tid());
  }
  // Stops go on meanwhile, and those who wait for them are bombarded as well.
  std::thread stopper([&] {
    for (int i = 0; i < 200; ++i) {
      for (const pid_t tid : tids) {
        syscall(SYS_tgkill, getpid(), tid, SIGUSR1);
      }
      if (i % 4 == 0) StopAndCheck(runtime(), canary());
    }
  });
  const pid_t self = static_cast<pid_t>(syscall(SYS_gettid));
  std::thread bomber([&] {
    for (int i = 0; i < 200; ++i) {
      syscall(SYS_tgkill, getpid(), self, SIGUSR1);
    }
  });
  for (int i = 0; i < 50; ++i) StopAndCheck(runtime(), canary());
  stopper.join();
  bomber.join();
  // Its permit is not given before it waits for it.
  Await([&] { return timed_out.load(); });
  EXPECT_EQ(back.load(), 0);
  EXPECT_GT(signals_seen.load(), 0);
  release.store(true);
  for (const ThreadHandle& waiter : waiters) waiter.Unpark();
  for (const ThreadHandle& waiter : waiters) EXPECT_TRUE(waiter.Join().ok());
  EXPECT_EQ(back.load(), static_cast<int>(waiting));
  EXPECT_TRUE(holder.Join().ok());
  End();
  ASSERT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
}

}  // namespace
}  // namespace stillpoint
