// Incidents C1 and C5: a storm of handshakes and suspensions against a storm of
// exits, among stops: each closure runs once, or never because its target is
// gone; never after the target's end.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::StartOrFail;
using testing::StopAndCheck;

class HandshakeStormTest : public testing::RuntimeTest {
 protected:
  // What a thread leaves behind at its very end, in the destructor of a
  // thread-local slot. Not freed before the test is over.
  struct Life {
    std::atomic<bool> ended{false};
    uint64_t unprotected = 0;  // by the target and by closures
  };

  void SetUp() override {
    RuntimeTest::SetUp();
    absl::StatusOr<ThreadLocalSlot> slot =
        runtime().CreateThreadLocalSlot([](void* life) {
          // In Managed: no closure is at work, and none can know it later.
          ManagedScope managed;
          static_cast<Life*>(life)->ended.store(true,
                                                std::memory_order_relaxed);
        });
    ASSERT_TRUE(slot.ok());
    slot_ = *slot;
  }

  ThreadHandle StartShortLived(int variant) {
    Life* life = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      lives_.push_back(std::make_unique<Life>());
      life = lives_.back().get();
    }
    return StartOrFail(runtime(), "short", [this, life, variant] {
      Thread& self = Thread::CurrentOrDie();
      {
        ManagedScope managed;
        self.set_local(slot_, life);
        for (int i = 0; i < variant % 4; ++i) {
          {
            StopCanary::Work work(canary());
            ++life->unprotected;
          }
          Poll(self);
          if (variant % 3 == 0) NativeScope native;
        }
      }
      if (variant % 5 == 0)
        Park(Deadline::After(std::chrono::microseconds(50))).IgnoreError();
    });
  }

  // A closure for whoever it is run for.
  void Touch(Thread& target) {
    StopCanary::Work work(canary());
    auto* life = static_cast<Life*>(target.local(slot_));
    if (life == nullptr) return;  // before or after its life
    EXPECT_FALSE(life->ended.load(std::memory_order_relaxed));
    ++life->unprotected;
  }

  ThreadLocalSlot slot_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Life>> lives_;
};
STILLPOINT_IN_ALL_CONFIGURATIONS(HandshakeStormTest);

TEST_P(HandshakeStormTest, HandshakesAgainstExitsAndStops) {
  constexpr int kStarts = 60;
  std::atomic<bool> done{false};
  std::mutex targets_mutex;
  std::vector<ThreadHandle> targets;
  const auto pick = [&](uint32_t random) {
    std::lock_guard<std::mutex> lock(targets_mutex);
    return targets.empty() ? ThreadHandle() : targets[random % targets.size()];
  };
  std::atomic<uint64_t> async_asked{0}, async_ran{0}, async_done{0},
      async_gone{0};

  std::vector<std::thread> starters;
  for (int s = 0; s < 2; ++s) {
    starters.emplace_back([&, s] {
      for (int i = 0; i < kStarts; ++i) {
        ThreadHandle started = StartShortLived(i + s);
        {
          std::lock_guard<std::mutex> lock(targets_mutex);
          targets.push_back(started);
          if (targets.size() > 8) targets.erase(targets.begin());
        }
        if (i % 2 == 0) {
          EXPECT_TRUE(started.Join().ok());
        }
      }
    });
  }
  std::vector<std::thread> requesters;
  for (int r = 0; r < 2; ++r) {
    requesters.emplace_back([&, r] {
      AttachScope attached(runtime(), "requester");
      ASSERT_TRUE(attached.status().ok());
      uint32_t random = 1 + r;
      while (!done.load()) {
        random = random * 1664525 + 1013904223;
        const ThreadHandle target = pick(random >> 16);
        int ran = 0;
        const auto touch = [&](Thread& thread) {
          EXPECT_EQ(&thread, target.slot());
          Touch(thread);
          ++ran;
        };
        const bool managed = random % 2 == 0;
        const auto ask = [&] {
          const absl::StatusOr<HandshakeResult> result =
              runtime().Handshake(target, "touch", touch);
          ASSERT_TRUE(result.ok()) << result.status();
          ASSERT_EQ(ran, *result == HandshakeResult::kDone ? 1 : 0);
        };
        if (managed) {
          ManagedScope scope;
          ask();
        } else {
          ask();
        }
        if (random % 7 == 0) {
          std::atomic<size_t> count{0};
          const absl::StatusOr<size_t> all =
              runtime().HandshakeAll("all", [&](Thread& thread) {
                Touch(thread);
                count.fetch_add(1);
              });
          ASSERT_TRUE(all.ok()) << all.status();
          ASSERT_EQ(*all, count.load());
        }
        if (random % 5 == 0) {
          async_asked.fetch_add(1);
          const absl::Status asked = runtime().HandshakeAsync(
              target, "async",
              [&](Thread& thread) {
                Touch(thread);
                async_ran.fetch_add(1);
              },
              [&](HandshakeResult result) {
                (result == HandshakeResult::kDone ? async_done : async_gone)
                    .fetch_add(1);
              });
          ASSERT_TRUE(asked.ok()) << asked;
        }
      }
    });
  }
  // Each takes back what it has done, so nobody's Resume is in vain; two may
  // suspend one thread, and each other (but not both without waiting).
  std::vector<std::thread> suspenders;
  std::atomic<const Thread*> suspender_slots[2] = {};
  for (int s = 0; s < 2; ++s) {
    suspenders.emplace_back([&, s] {
      AttachScope attached(runtime(), "suspender");
      ASSERT_TRUE(attached.status().ok());
      const ThreadHandle self = CurrentThreadHandle();
      suspender_slots[s].store(self.slot());
      {
        std::lock_guard<std::mutex> lock(targets_mutex);
        targets.insert(targets.begin(), self);
      }
      uint32_t random = 77 + s;
      while (!done.load()) {
        random = random * 1664525 + 1013904223;
        const ThreadHandle target = pick(random >> 16);
        if (target == self) continue;
        std::optional<ManagedScope> managed;
        if (random % 3 == 0) managed.emplace();
        const absl::StatusOr<HandshakeResult> suspended =
            random % 2 == 0 || target.slot() == suspender_slots[1 - s].load()
                ? runtime().Suspend(target)
                : runtime().SuspendAsync(target);
        ASSERT_TRUE(suspended.ok()) << suspended.status();
        if (*suspended == HandshakeResult::kGone) continue;
        const absl::StatusOr<HandshakeResult> seen =
            runtime().Handshake(target, "seen", [&](Thread& t) { Touch(t); });
        ASSERT_TRUE(seen.ok()) << seen.status();
        const absl::StatusOr<HandshakeResult> resumed =
            runtime().Resume(target);
        ASSERT_TRUE(resumed.ok()) << resumed.status();
      }
    });
  }
  std::thread stopper([&] {
    while (!done.load()) {
      StopAndCheck(runtime(), canary());
      const absl::Status stopped = runtime().AtSafepoint("asks", [&](World&) {
        EXPECT_TRUE(runtime().HandshakeAll("in a stop", [](Thread&) {}).ok());
      });
      EXPECT_TRUE(stopped.ok()) << stopped;
    }
  });
  for (std::thread& starter : starters) starter.join();
  done.store(true);
  for (std::thread& requester : requesters) requester.join();
  for (std::thread& suspender : suspenders) suspender.join();
  stopper.join();
  Await([&] { return runtime().ThreadCount() == 0; });
  EXPECT_EQ(async_ran.load(), async_done.load());
  EXPECT_EQ(async_done.load() + async_gone.load(), async_asked.load());
}

// Threads that ask each other and all, in Managed and out of it, and end while
// others ask them.
TEST_P(HandshakeStormTest, EverybodyAsksEverybody) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 25;
  std::vector<ThreadHandle> peers(kThreads);
  std::atomic<int> ready{0};
  std::atomic<uint64_t> ran{0};
  std::atomic<uint64_t> done{0};
  for (int i = 0; i < kThreads; ++i) {
    peers[i] = StartOrFail(runtime(), "peer-" + std::to_string(i), [&, i] {
      ready.fetch_add(1);
      Await([&] { return ready.load() == kThreads + 1; });
      const auto count = [&](Thread&) {
        StopCanary::Work work(canary());
        ran.fetch_add(1);
      };
      const auto ask = [&](int round) {
        if (round % 4 == 0) {
          const absl::StatusOr<size_t> all =
              runtime().HandshakeAll("all", count);
          ASSERT_TRUE(all.ok()) << all.status();
          done.fetch_add(*all);
          return;
        }
        const absl::StatusOr<HandshakeResult> one =
            runtime().Handshake(peers[(i + round) % kThreads], "one", count);
        ASSERT_TRUE(one.ok()) << one.status();
        done.fetch_add(*one == HandshakeResult::kDone);
      };
      for (int round = 0; round < kRounds; ++round) {
        ask(round);
        ManagedScope managed;
        ask(round + 1);
        Poll();
      }
    });
  }
  Await([&] { return ready.load() == kThreads; });
  ready.fetch_add(1);
  while (runtime().ThreadCount() > 0) StopAndCheck(runtime(), canary());
  EXPECT_EQ(ran.load(), done.load());
}

}  // namespace
}  // namespace stillpoint
