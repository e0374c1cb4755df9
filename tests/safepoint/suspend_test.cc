// Suspend and resume: of threads in each state, nested, of oneself, of each
// other, against locks and operations, and against ends.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/stillpoint.h"
#include "tests/safepoint/handshake_fixture.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using ::testing::HasSubstr;
using testing::StartOrFail;
using testing::StopAndCheck;

constexpr LockRank kRank{"suspend_test_lock", kFirstEmbedderRank,
                         "shared by suspender and suspended"};

class SuspendTest : public testing::HandshakeFixture {
 protected:
  void Suspend(const ThreadHandle& target) {
    const absl::StatusOr<HandshakeResult> result = runtime().Suspend(target);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(*result, HandshakeResult::kDone);
  }
  void Resume(const ThreadHandle& target) {
    const absl::StatusOr<HandshakeResult> result = runtime().Resume(target);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(*result, HandshakeResult::kDone);
  }
  static uint32_t CountOf(const ThreadHandle& target) {
    return target.slot()->record().suspend_count.load();
  }

  // A thread that counts in managed code, until it is interrupted.
  ThreadHandle StartCounting() {
    ThreadHandle handle = StartOrFail(runtime(), "counting", [this] {
      ManagedScope managed;
      Thread& self = Thread::CurrentOrDie();
      while (!self.interrupted()) {
        progress_.fetch_add(1);
        Poll(self);
        if (progress_.load() % 64 == 0) NativeScope native;
      }
    });
    AwaitProgress();
    return handle;
  }
  void AwaitProgress() {
    const uint64_t before = progress_.load();
    Await([&] { return progress_.load() > before; });
  }
  // It must not move: as long as a few stops and handshakes take.
  void ExpectNoProgress(const ThreadHandle& target) {
    const uint64_t before = progress_.load();
    for (int i = 0; i < 5; ++i) {
      StopAndCheck(runtime(), canary());
      ExpectDone(target);
      std::this_thread::yield();
    }
    EXPECT_EQ(progress_.load(), before);
    // In its NativeScope, or on its way back.
    EXPECT_TRUE(IsSafe(target.slot()->state()));
  }

  std::atomic<uint64_t> progress_{0};
};
STILLPOINT_IN_ALL_CONFIGURATIONS(SuspendTest);

TEST_P(SuspendTest, ARunningThreadStandsStillUntilItIsResumedAsOften) {
  const ThreadHandle target = StartCounting();
  for (int round = 0; round < 20; ++round) {
    Suspend(target);
    ExpectNoProgress(target);
    Suspend(target);
    ASSERT_TRUE(runtime().SuspendAsync(target).ok());
    EXPECT_EQ(CountOf(target), 3u);
    Resume(target);
    Resume(target);
    ExpectNoProgress(target);
    Resume(target);
    AwaitProgress();
  }
  const absl::Status refused = runtime().Resume(target).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("not suspended"));
  EndParked(target);
}

TEST_P(SuspendTest, ABlockedThreadDoesNotComeBack) {
  for (const bool managed : {false, true}) {
    const ThreadHandle target = StartParked("parked", managed);
    Suspend(target);
    EXPECT_TRUE(target.Interrupt());
    if (managed) {
      // Its wait has ended; it waits on.
      Await([&] { return !target.slot()->interrupted(); });
      StopAndCheck(runtime(), canary());
      EXPECT_TRUE(target.alive());
      Resume(target);
    }
    // From Native it had nothing to come back to.
    EXPECT_TRUE(target.Join().ok());
  }
}

TEST_P(SuspendTest, NativeCodeGoesOn) {
  std::atomic<bool> end{false};
  std::atomic<bool> in{false};
  const ThreadHandle target = StartOrFail(runtime(), "native", [&] {
    while (!end.load()) progress_.fetch_add(1);
    ManagedScope managed;
    in.store(true);
  });
  AwaitProgress();
  Suspend(target);
  AwaitProgress();
  end.store(true);
  testing::AwaitState(runtime(), "native", ThreadState::kBlocked);
  StopAndCheck(runtime(), canary());
  EXPECT_FALSE(in.load());
  Resume(target);
  EXPECT_TRUE(target.Join().ok());
  EXPECT_TRUE(in.load());
}

TEST_P(SuspendTest, Oneself) {
  std::atomic<int> through{0};
  const ThreadHandle self = StartOrFail(runtime(), "self", [&] {
    Suspend(CurrentThreadHandle());
    through.fetch_add(1);
    ManagedScope managed;
    Suspend(CurrentThreadHandle());
    through.fetch_add(1);
    {
      BlockedScope blocked;
      Suspend(CurrentThreadHandle());
    }
    through.fetch_add(1);
    // At the next poll.
    ASSERT_TRUE(runtime().SuspendAsync(CurrentThreadHandle()).ok());
    EXPECT_EQ(through.load(), 3);
    Poll();
    through.fetch_add(1);
  });
  for (int i = 0; i < 4; ++i) {
    Await([&] { return CountOf(self) == 1; });
    testing::AwaitState(runtime(), "self", ThreadState::kBlocked);
    EXPECT_EQ(through.load(), i);
    Resume(self);
  }
  EXPECT_TRUE(self.Join().ok());
}

TEST_P(SuspendTest, FromAnOperationAndFromAClosure) {
  const ThreadHandle target = StartCounting();
  ASSERT_TRUE(
      runtime().AtSafepoint("suspends", [&](World&) { Suspend(target); }).ok());
  ExpectNoProgress(target);
  ASSERT_TRUE(
      runtime().AtSafepoint("resumes", [&](World&) { Resume(target); }).ok());
  AwaitProgress();
  ASSERT_TRUE(runtime()
                  .Handshake(target, "suspends",
                             [&](Thread&) {
                               EXPECT_TRUE(absl::IsFailedPrecondition(
                                   runtime().Suspend(target).status()));
                               EXPECT_TRUE(runtime().SuspendAsync(target).ok());
                             })
                  .ok());
  ExpectNoProgress(target);
  ASSERT_TRUE(
      runtime()
          .Handshake(target, "resumes", [&](Thread&) { Resume(target); })
          .ok());
  AwaitProgress();
  EndParked(target);
}

TEST_P(SuspendTest, GoneAndOfAnotherRuntime) {
  const ThreadHandle ended = StartOrFail(runtime(), "ended", [] {});
  EXPECT_TRUE(ended.Join().ok());
  for (const ThreadHandle& gone : {ended, ThreadHandle()}) {
    for (const absl::StatusOr<HandshakeResult>& result :
         {runtime().Suspend(gone), runtime().SuspendAsync(gone),
          runtime().Resume(gone)}) {
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(*result, HandshakeResult::kGone);
    }
  }
  // Suspended in native code, and ends there.
  const ThreadHandle native = StartParked("native", false);
  Suspend(native);
  EndParked(native);
  EXPECT_EQ(*runtime().Resume(native), HandshakeResult::kGone);
  // The slot's next thread is not suspended.
  const ThreadHandle next = StartCounting();
  EndParked(next);
  std::unique_ptr<Runtime> other = testing::MakeRuntime();
  ASSERT_NE(other, nullptr);
  EXPECT_TRUE(absl::IsInvalidArgument(other->Suspend(next).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(other->SuspendAsync(next).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(other->Resume(next).status()));
}

TEST_P(SuspendTest, TwoThreadsOfEachOther) {
  constexpr int kRounds = 200;
  constexpr int kPeers = 3;
  std::vector<ThreadHandle> peers(kPeers);
  std::atomic<int> ready{0};
  std::atomic<int> through{0};
  for (int i = 0; i < kPeers; ++i) {
    peers[i] = StartOrFail(runtime(), "peer-" + std::to_string(i), [&, i] {
      ready.fetch_add(1);
      Await([&] { return ready.load() == kPeers + 1; });
      ManagedScope managed;
      for (int round = 0; round < kRounds; ++round) {
        const ThreadHandle& peer = peers[(i + 1 + round % 2) % kPeers];
        Suspend(peer);
        Poll();
        Resume(peer);
      }
      through.fetch_add(1);
      BlockedScope blocked;
      Await([&] { return through.load() == kPeers; });
    });
  }
  Await([&] { return ready.load() == kPeers; });
  ready.fetch_add(1);
  for (const ThreadHandle& peer : peers) EXPECT_TRUE(peer.Join().ok());
}

// Incident C2: the suspended thread is stopped where it holds no lock of the
// runtime, and none that managed code gives back before it stops. So everything
// works for the suspender.
TEST_P(SuspendTest, AgainstLocksAndOperations) {
  RankedMutex mutex(kRank);
  std::atomic<bool> end{false};
  const ThreadHandle helper = StartParked("helper", true);
  const auto use_everything = [&] {
    EXPECT_TRUE(runtime().AtSafepoint("operation", [](World&) {}).ok());
    EXPECT_TRUE(runtime().Handshake(helper, "handshake", [](Thread&) {}).ok());
    EXPECT_TRUE(StartOrFail(runtime(), "short", [] {}).Join().ok());
    RankedMutexLock lock(mutex);
  };
  const ThreadHandle target = StartOrFail(runtime(), "target", [&] {
    while (!end.load()) {
      use_everything();
      ManagedScope managed;
      Poll();
      EXPECT_TRUE(runtime().AtSafepoint("managed", [](World&) {}).ok());
    }
  });
  for (int i = 0; i < 30; ++i) {
    Suspend(target);
    use_everything();
    ExpectDone(target);
    Resume(target);
  }
  end.store(true);
  EXPECT_TRUE(target.Join().ok());
  EndParked(helper);
}

TEST_P(SuspendTest, AnInterruptStaysPending) {
  const ThreadHandle target = StartCounting();
  Suspend(target);
  EXPECT_TRUE(target.Interrupt());
  ExpectNoProgress(target);
  EXPECT_TRUE(target.alive());
  Resume(target);
  EXPECT_TRUE(target.Join().ok());
}

TEST_P(SuspendTest, ShutdownLetsThemGo) {
  const ThreadHandle target = StartCounting();
  Suspend(target);
  Suspend(target);
  const ThreadHandle self = StartOrFail(runtime(), "self", [&] {
    ASSERT_TRUE(runtime().Suspend(CurrentThreadHandle()).ok());
  });
  Await([&] { return CountOf(self) == 1; });
  ASSERT_TRUE(runtime().Shutdown(Deadline::Infinite()).ok());
  EXPECT_FALSE(target.alive());
  EXPECT_TRUE(absl::IsFailedPrecondition(runtime().Suspend(target).status()));
}

// Incident B9: T1 suspends T2 and lets it go, T3 stops the world, T2 leaves and
// enters managed code; in each order of their steps, all end.
TEST_P(SuspendTest, ThreeWayInterleavings) {
  class Actor {
   public:
    void Grant() { granted_.fetch_add(1); }
    // The next step may be taken.
    void AwaitGrant(Thread* polls) {
      ++taken_;
      while (granted_.load() < taken_) {
        if (polls != nullptr) Poll(*polls);
      }
    }
    void Did() { did_.fetch_add(1); }
    // It has done what it may, or waits for somebody in there.
    void AwaitQuiet(const ThreadHandle& handle) const {
      Await([&] {
        return did_.load() == granted_.load() ||
               handle.slot()->state() == ThreadState::kBlocked;
      });
    }

   private:
    std::atomic<int> granted_{0};
    std::atomic<int> did_{0};
    int taken_ = 0;
  };
  // Which actor takes its next step.
  std::vector<int> order = {0, 0, 1, 2, 2};
  int orders = 0;
  do {
    Actor actors[3];
    ThreadHandle handles[3];
    std::atomic<bool> ready{false};
    handles[2] = StartOrFail(runtime(), "T2", [&] {
      ManagedScope managed;
      Thread& self = Thread::CurrentOrDie();
      actors[2].AwaitGrant(&self);
      {
        NativeScope native;
        actors[2].Did();
        actors[2].AwaitGrant(nullptr);
      }
      actors[2].Did();
    });
    handles[0] = StartOrFail(runtime(), "T1", [&] {
      Await([&] { return ready.load(); });
      actors[0].AwaitGrant(nullptr);
      EXPECT_TRUE(runtime().Suspend(handles[2]).ok());
      actors[0].Did();
      actors[0].AwaitGrant(nullptr);
      EXPECT_TRUE(runtime().Resume(handles[2]).ok());
      actors[0].Did();
    });
    handles[1] = StartOrFail(runtime(), "T3", [&] {
      actors[1].AwaitGrant(nullptr);
      StopAndCheck(runtime(), canary());
      actors[1].Did();
    });
    ready.store(true);
    for (const int actor : order) {
      actors[actor].Grant();
      if (handles[actor].alive()) actors[actor].AwaitQuiet(handles[actor]);
    }
    for (const ThreadHandle& handle : handles) {
      EXPECT_TRUE(handle.Join().ok());
    }
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(orders, 30);
}

}  // namespace
}  // namespace stillpoint
