// Incident B14, for each way to wait: who waits counts as stopped. And it can
// be seen what for.

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "runtime/sync/channel.h"
#include "runtime/sync/cond_var.h"
#include "runtime/sync/mutex.h"
#include "runtime/sync/select.h"
#include "runtime/sync/semaphore.h"
#include "runtime/sync/wait_group.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::StartOrFail;

class BlockingTest : public testing::RuntimeTest {
 protected:
  struct Row {
    WaitingFor what;
    absl::AnyInvocable<absl::Status()> wait;  // until an interrupt
  };

  // The objects at which nothing ever happens.
  Mutex held_;
  Mutex mutex_;
  CondVar cond_;
  Semaphore semaphore_{0};
  WaitGroup group_{1};
  Channel<int> channel_;
  std::optional<int> into_;
  ReceiveCase<int> receive_{&channel_, into_};
  SelectCase* const cases_[1] = {&receive_};
};
STILLPOINT_IN_ALL_CONFIGURATIONS(BlockingTest);

TEST_P(BlockingTest, WhoWaitsCountsAsStoppedAndSaysWhatFor) {
  held_.Lock();
  const ThreadHandle never = StartOrFail(
      runtime(), "never", [] { EXPECT_TRUE(IsInterrupted(Park())); });
  std::vector<Row> rows;
  rows.push_back({WaitingFor(WaitKind::kMutex, &held_),
                  [&] { return held_.LockInterruptibly(); }});
  rows.push_back({WaitingFor(WaitKind::kCondVar, &cond_), [&] {
                    MutexLock lock(mutex_);
                    return cond_.Wait(mutex_);
                  }});
  rows.push_back({WaitingFor(WaitKind::kSemaphore, &semaphore_),
                  [&] { return semaphore_.Acquire(); }});
  rows.push_back({WaitingFor(WaitKind::kWaitGroup, &group_),
                  [&] { return group_.Wait(); }});
  rows.push_back({WaitingFor(WaitKind::kChannel, &channel_),
                  [&] { return channel_.Send(1); }});
  rows.push_back({WaitingFor(WaitKind::kChannel, &channel_),
                  [&] { return channel_.Receive().status(); }});
  rows.push_back(
      {WaitingFor(WaitKind::kSelect), [&] { return Select(cases_).status(); }});
  rows.push_back({WaitingFor(WaitKind::kPermit), [] { return Park(); }});
  rows.push_back({WaitingFor(WaitKind::kTime),
                  [] { return Sleep(Deadline::Infinite()); }});
  rows.push_back({WaitingFor(WaitKind::kThread, never.slot()),
                  [&] { return never.Join(); }});
  for (Row& row : rows) {
    const ThreadHandle waiter = StartOrFail(runtime(), "waiter", [&] {
      ManagedScope managed;
      const absl::Status status = row.wait();
      EXPECT_TRUE(IsInterrupted(status)) << status;
      EXPECT_EQ(Thread::CurrentOrDie().waiting_for(), WaitingFor());
    });
    Thread& thread = *waiter.slot();
    Await([&] {
      return thread.waiting_for() == row.what &&
             thread.state() == ThreadState::kBlocked;
    });
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(runtime()
                      .AtSafepoint("look",
                                   [&](World&) {
                                     EXPECT_EQ(thread.waiting_for(), row.what);
                                   })
                      .ok());
    }
    EXPECT_TRUE(waiter.Interrupt());
    EXPECT_TRUE(waiter.Join().ok());
  }
  EXPECT_TRUE(never.Interrupt());
  EXPECT_TRUE(never.Join().ok());
  held_.Unlock();
}

// A VM operation and a handshake are waits as well.
TEST_P(BlockingTest, SoDoRequesters) {
  std::atomic<bool> let_go{false};
  const ThreadHandle busy = StartOrFail(runtime(), "busy", [&] {
    ManagedScope managed;
    while (!let_go.load()) {
      // Polls not, so that both requests take their time.
    }
  });
  testing::AwaitState(runtime(), "busy", ThreadState::kManaged);
  const ThreadHandle shaker = StartOrFail(runtime(), "shaker", [&] {
    EXPECT_TRUE(runtime().Handshake(busy, "shake", [](Thread&) {}).ok());
  });
  Await([&] {
    return shaker.slot()->waiting_for() == WaitingFor(WaitKind::kHandshake);
  });
  const ThreadHandle stopper = StartOrFail(runtime(), "stopper", [&] {
    EXPECT_TRUE(runtime().AtSafepoint("stop", [](World&) {}).ok());
  });
  Await([&] {
    return stopper.slot()->waiting_for() == WaitingFor(WaitKind::kOperation);
  });
  let_go.store(true);
  for (const ThreadHandle& thread : {busy, shaker, stopper}) {
    EXPECT_TRUE(thread.Join().ok());
  }
}

}  // namespace
}  // namespace stillpoint
