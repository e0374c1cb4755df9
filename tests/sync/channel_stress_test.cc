// Channels and selects under stops, interrupts, deadlines and closing.

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "runtime/sync/channel.h"
#include "runtime/sync/select.h"
#include "tests/base/sanitizers.h"
#include "tests/support/busy_mutators.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Rounds;
using testing::StartOrFail;

class ChannelStressTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(ChannelStressTest);

// Every value arrives once, whoever sends and receives it in whatever way,
// and whatever ends the waits in between.
TEST_P(ChannelStressTest, NothingIsLostNorMadeUp) {
  const int each = Rounds(1500);
  for (const size_t capacity : {size_t{0}, size_t{3}}) {
    Channel<std::unique_ptr<int64_t>> a(capacity);
    Channel<std::unique_ptr<int64_t>> b(capacity);
    std::atomic<int64_t> sent{0};
    std::atomic<int64_t> received{0};
    std::atomic<int> senders{4};
    const auto impatient = [](int i) {
      return i % 4 == 0 ? Deadline::After(std::chrono::microseconds(i % 30))
                        : Deadline::Infinite();
    };
    const auto sent_all = [&] {
      if (senders.fetch_sub(1) != 1) return;
      a.Close();
      b.Close();
    };
    const auto send = [&](Channel<std::unique_ptr<int64_t>>& channel) {
      for (int i = 1; i <= each; ++i) {
        auto value = std::make_unique<int64_t>(i);
        while (true) {
          const absl::Status status =
              channel.Send(std::move(value), impatient(i));
          if (status.ok()) break;
          EXPECT_TRUE(IsInterrupted(status) || absl::IsDeadlineExceeded(status))
              << status;
          ASSERT_NE(value, nullptr);
        }
        sent.fetch_add(i);
      }
      sent_all();
    };
    const auto select_send = [&] {
      for (int i = 1; i <= each; ++i) {
        auto value = std::make_unique<int64_t>(i);
        SendCase<std::unique_ptr<int64_t>> to_a(&a, value);
        SendCase<std::unique_ptr<int64_t>> to_b(&b, value);
        SelectCase* const cases[] = {&to_a, &to_b};
        while (!Select(cases, impatient(i)).ok()) ASSERT_NE(value, nullptr);
        EXPECT_EQ(value, nullptr);
        sent.fetch_add(i);
      }
      sent_all();
    };
    const auto receive = [&](Channel<std::unique_ptr<int64_t>>& channel) {
      for (int i = 0;; ++i) {
        absl::StatusOr<std::unique_ptr<int64_t>> value =
            channel.Receive(impatient(i));
        if (value.ok()) {
          received.fetch_add(**value);
        } else if (IsClosed(value.status())) {
          return;
        }
      }
    };
    const auto select_receive = [&] {
      for (int i = 0;; ++i) {
        std::optional<std::unique_ptr<int64_t>> value;
        ReceiveCase<std::unique_ptr<int64_t>> from_a(&a, value);
        ReceiveCase<std::unique_ptr<int64_t>> from_b(&b, value);
        SelectCase* const cases[] = {&from_a, &from_b};
        const absl::StatusOr<size_t> chosen = Select(cases, impatient(i));
        if (!chosen.ok()) continue;
        if (cases[*chosen]->closed()) return;
        received.fetch_add(**value);
      }
    };
    const auto in_managed = [&](auto body) {
      return StartOrFail(runtime(), "", [body]() mutable {
        ManagedScope managed;
        body();
      });
    };
    const ThreadHandle threads[] = {
        in_managed([&] { send(a); }),
        in_managed(select_send),
        in_managed(select_send),
        in_managed([&] { receive(a); }),
        in_managed(select_receive),
        StartOrFail(runtime(), "", [&] { receive(b); }),
    };
    std::thread unattached([&] { send(b); });
    for (int i = 0; i < 10 || senders.load() != 0; ++i) {
      threads[i % 6].Interrupt();
      EXPECT_TRUE(runtime().AtSafepoint("stop", [](World&) {}).ok());
    }
    for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
    unattached.join();
    // What nobody has taken yet, since a receiver left at the other's closing.
    std::optional<std::unique_ptr<int64_t>> rest;
    for (auto* channel : {&a, &b}) {
      while (channel->TryReceive(rest) == ChannelResult::kOk) {
        received.fetch_add(**rest);
      }
    }
    EXPECT_EQ(sent.load(), received.load());
    EXPECT_EQ(sent.load(), int64_t{4} * each * (each + 1) / 2);
  }
}

TEST_P(ChannelStressTest, ClosingRacesWithEverything) {
  for (int round = 0; round < Rounds(200); ++round) {
    Channel<int> a;
    Channel<int> b(1);
    std::atomic<int> sent{0};
    std::atomic<int> received{0};
    const auto send = [&] {
      ManagedScope managed;
      while (a.Send(1).ok()) sent.fetch_add(1);
    };
    const auto select = [&] {
      ManagedScope managed;
      while (true) {
        int value = 1;
        std::optional<int> into;
        SendCase<int> to_b(&b, value);
        ReceiveCase<int> from_a(&a, into);
        SelectCase* const cases[] = {&to_b, &from_a};
        const absl::StatusOr<size_t> chosen = Select(cases);
        ASSERT_TRUE(chosen.ok());
        if (cases[*chosen]->closed()) return;
        (*chosen == 0 ? sent : received).fetch_add(1);
      }
    };
    const auto receive = [&] {
      while (b.Receive().ok()) received.fetch_add(1);
    };
    const ThreadHandle threads[] = {
        StartOrFail(runtime(), "", send),
        StartOrFail(runtime(), "", select),
        StartOrFail(runtime(), "", select),
        StartOrFail(runtime(), "", receive),
    };
    for (int i = 0; i < round % 5; ++i) sched_yield();
    (round % 2 == 0 ? a : b).Close();
    EXPECT_TRUE(runtime().AtSafepoint("stop", [](World&) {}).ok());
    (round % 2 == 0 ? b : a).Close();
    for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
    std::optional<int> rest;
    while (b.TryReceive(rest) == ChannelResult::kOk) received.fetch_add(1);
    EXPECT_EQ(sent.load(), received.load());
  }
}

// A reply channel on the receiver's stack: gone when the value is there, while
// the sender may still be in Send. ASan watches.
TEST_P(ChannelStressTest, TheReceiverMayDestroyIt) {
  Channel<Channel<int>*> requests;
  const ThreadHandle server = StartOrFail(runtime(), "", [&] {
    ManagedScope managed;
    while (true) {
      const absl::StatusOr<Channel<int>*> request = requests.Receive();
      if (!request.ok()) return;
      EXPECT_TRUE((*request)->Send(1).ok());
    }
  });
  const ThreadHandle client = StartOrFail(runtime(), "", [&] {
    ManagedScope managed;
    for (int i = 0; i < Rounds(3000); ++i) {
      auto reply = std::make_unique<Channel<int>>();
      EXPECT_TRUE(requests.Send(reply.get()).ok());
      if (i % 2 == 0) {
        EXPECT_EQ(*reply->Receive(), 1);
        continue;
      }
      std::optional<int> into;
      ReceiveCase<int> receive(reply.get(), into);
      SelectCase* const cases[] = {&receive};
      EXPECT_TRUE(Select(cases).ok());
    }
  });
  EXPECT_TRUE(client.Join().ok());
  requests.Close();
  EXPECT_TRUE(server.Join().ok());
}

// Plain memory follows the values; TSan checks it.
TEST_P(ChannelStressTest, PingPongUnderStopsWithBusyMutators) {
  testing::BusyMutators mutators(runtime(), canary(), 2);
  Channel<int64_t*> there;
  Channel<int64_t*> back;
  const int rounds = Rounds(1000);
  std::atomic<bool> over{false};
  const ThreadHandle one = StartOrFail(runtime(), "", [&] {
    ManagedScope managed;
    int64_t ball = 0;
    for (int i = 0; i < rounds; ++i) {
      EXPECT_TRUE(there.Send(&ball).ok());
      EXPECT_EQ(*back.Receive(), &ball);
      ++ball;
    }
    EXPECT_EQ(ball, int64_t{2} * rounds);
    over.store(true);
  });
  const ThreadHandle two = StartOrFail(runtime(), "", [&] {
    ManagedScope managed;
    for (int i = 0; i < rounds; ++i) {
      int64_t* const ball = *there.Receive();
      ++*ball;
      EXPECT_TRUE(back.Send(ball).ok());
    }
  });
  while (!over.load()) testing::StopAndCheck(runtime(), canary());
  EXPECT_TRUE(one.Join().ok());
  EXPECT_TRUE(two.Join().ok());
}

}  // namespace
}  // namespace stillpoint
