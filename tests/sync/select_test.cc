// Select: readiness, fairness, closing, what ends a wait.

#include "runtime/sync/select.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "runtime/sync/channel.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::StartOrFail;

class SelectTest : public ::testing::Test {
 protected:
  ThreadHandle Start(std::string_view name, std::function<void()> body) {
    return StartOrFail(*runtime_, name, std::move(body));
  }
  void OnThread(std::function<void()> body) {
    EXPECT_TRUE(Start("", std::move(body)).Join().ok());
  }
  void AwaitSelecting(const ThreadHandle& thread) {
    Await([&] {
      return thread.slot()->waiting_for() == WaitingFor(WaitKind::kSelect) &&
             thread.slot()->state() == ThreadState::kBlocked;
    });
  }

  const std::unique_ptr<Runtime> runtime_ = testing::MakeRuntime();
};

TEST_F(SelectTest, DoesWhatIsReady) {
  Channel<int> a(1);
  Channel<int> b(1);
  std::optional<int> from_a;
  int to_b = 5;
  ReceiveCase<int> receive(&a, from_a);
  SendCase<int> send(&b, to_b);
  SelectCase* const cases[] = {&receive, &send};
  absl::StatusOr<size_t> chosen = Select(cases);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, 1u);
  EXPECT_FALSE(send.closed());
  EXPECT_TRUE(a.Send(4).ok());
  chosen = Select(cases);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, 0u);
  EXPECT_EQ(from_a, 4);
  EXPECT_FALSE(TrySelect(cases).has_value());  // the default case
  EXPECT_EQ(*b.Receive(), 5);
  EXPECT_EQ(TrySelect(cases), std::optional<size_t>(1));
}

TEST_F(SelectTest, WaitsForTheFirstThatIsReady) {
  Channel<int> a;
  Channel<int> b;
  for (const bool at_a : {true, false}) {
    std::optional<int> from_a;
    int to_b = 5;
    const ThreadHandle selecting = Start("", [&] {
      ManagedScope managed;
      ReceiveCase<int> receive(&a, from_a);
      SendCase<int> send(&b, to_b);
      SelectCase* const cases[] = {&receive, &send};
      const absl::StatusOr<size_t> chosen = Select(cases);
      ASSERT_TRUE(chosen.ok());
      EXPECT_EQ(*chosen, at_a ? 0u : 1u);
      EXPECT_EQ(from_a, at_a ? std::optional<int>(7) : std::nullopt);
    });
    AwaitSelecting(selecting);
    EXPECT_TRUE(runtime_->AtSafepoint("stop", [](World&) {}).ok());
    if (at_a) {
      EXPECT_TRUE(a.Send(7).ok());
    } else {
      EXPECT_EQ(*b.Receive(), 5);
    }
    EXPECT_TRUE(selecting.Join().ok());
    // It has left the other queue.
    std::optional<int> none;
    EXPECT_EQ(b.TryReceive(none), ChannelResult::kWouldWait);
    EXPECT_EQ(a.TrySend(1), ChannelResult::kWouldWait);
  }
}

// Two selects meet: one has to be the one that is found.
TEST_F(SelectTest, SelectsMeet) {
  Channel<int> a;
  Channel<int> b;
  constexpr int kRounds = 2000;
  int64_t sent = 0;
  int64_t received = 0;
  const ThreadHandle sender = Start("", [&] {
    ManagedScope managed;
    for (int i = 0; i < kRounds; ++i) {
      int value = i;
      SendCase<int> to_a(&a, value);
      SendCase<int> to_b(&b, value);
      SelectCase* const cases[] = {&to_a, &to_b};
      ASSERT_TRUE(Select(cases).ok());
      sent += i;
    }
  });
  const ThreadHandle receiver = Start("", [&] {
    ManagedScope managed;
    for (int i = 0; i < kRounds; ++i) {
      std::optional<int> value;
      ReceiveCase<int> from_b(&b, value);
      ReceiveCase<int> from_a(&a, value);
      SelectCase* const cases[] = {&from_b, &from_a};
      ASSERT_TRUE(Select(cases).ok());
      received += *value;
    }
  });
  EXPECT_TRUE(sender.Join().ok());
  EXPECT_TRUE(receiver.Join().ok());
  EXPECT_EQ(sent, received);
}

TEST_F(SelectTest, DoesNotMeetItself) {
  Channel<int> channel;
  int value = 1;
  std::optional<int> into;
  SendCase<int> send(&channel, value);
  ReceiveCase<int> receive(&channel, into);
  SelectCase* const cases[] = {&send, &receive};
  EXPECT_FALSE(TrySelect(cases).has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      Select(cases, Deadline::After(std::chrono::milliseconds(1))).status()));
  std::thread other([&] { EXPECT_EQ(*channel.Receive(), 1); });
  EXPECT_EQ(*Select(cases), 0u);
  other.join();
}

TEST_F(SelectTest, IsFairAmongReadyCases) {
  constexpr int kRounds = 3000;
  Channel<int> channels[3] = {Channel<int>(1), Channel<int>(1),
                              Channel<int>(1)};
  Channel<int> never;
  const auto count = [&] {
    int counts[4] = {};
    std::optional<int> into;
    ReceiveCase<int> zero(&never, into);
    ReceiveCase<int> one(&channels[0], into);
    ReceiveCase<int> two(&channels[1], into);
    ReceiveCase<int> three(&channels[2], into);
    SelectCase* const cases[] = {&zero, &one, &two, &three};
    for (int i = 0; i < kRounds; ++i) {
      for (Channel<int>& channel : channels) {
        (void)channel.TrySend(1);
      }
      const absl::StatusOr<size_t> chosen = Select(cases);
      ASSERT_TRUE(chosen.ok());
      ++counts[*chosen];
    }
    EXPECT_EQ(counts[0], 0);
    // Each a third; less than a quarter is 10 standard deviations away.
    for (const int n : {counts[1], counts[2], counts[3]}) {
      EXPECT_GT(n, kRounds / 4);
    }
  };
  OnThread(count);
  count();  // unattached
}

TEST_F(SelectTest, AClosedChannelIsReady) {
  Channel<int> open;
  Channel<int> closing(1);
  EXPECT_TRUE(closing.Send(1).ok());
  EXPECT_TRUE(closing.Close());
  std::optional<int> into;
  int value = 2;
  ReceiveCase<int> from_open(&open, into);
  ReceiveCase<int> from_closed(&closing, into);
  SelectCase* const receives[] = {&from_open, &from_closed};
  EXPECT_EQ(*Select(receives), 1u);
  EXPECT_FALSE(from_closed.closed());
  EXPECT_EQ(into, 1);
  EXPECT_EQ(*Select(receives), 1u);
  EXPECT_TRUE(from_closed.closed());
  SendCase<int> to_closed(&closing, value);
  SelectCase* const sends[] = {&to_closed};
  EXPECT_EQ(*Select(sends), 0u);
  EXPECT_TRUE(to_closed.closed());
}

TEST_F(SelectTest, ClosingWakesASelect) {
  Channel<int> a;
  Channel<int> b;
  const ThreadHandle selecting = Start("", [&] {
    std::optional<int> into;
    ReceiveCase<int> from_a(&a, into);
    ReceiveCase<int> from_b(&b, into);
    SelectCase* const cases[] = {&from_a, &from_b};
    EXPECT_EQ(*Select(cases), 1u);
    EXPECT_TRUE(from_b.closed());
    EXPECT_FALSE(into.has_value());
  });
  AwaitSelecting(selecting);
  EXPECT_TRUE(b.Close());
  EXPECT_TRUE(selecting.Join().ok());
}

TEST_F(SelectTest, InterruptsAndDeadlinesEndIt) {
  Channel<int> channel;
  std::atomic<bool> last{false};
  const ThreadHandle selecting = Start("", [&] {
    ManagedScope managed;
    std::optional<int> into;
    ReceiveCase<int> receive(&channel, into);
    ReceiveCase<int> none(nullptr, into);
    SelectCase* const cases[] = {&receive, &none};
    EXPECT_TRUE(IsInterrupted(Select(cases).status()));
    EXPECT_FALSE(Thread::CurrentOrDie().interrupted());
    for (const int64_t timeout : {INT64_MIN, int64_t{-1}, int64_t{0},
                                  int64_t{1}, int64_t{999'999'999}}) {
      const Deadline deadline =
          Deadline::After(std::chrono::nanoseconds(timeout));
      EXPECT_TRUE(absl::IsDeadlineExceeded(Select(cases, deadline).status()));
      EXPECT_TRUE(deadline.passed());
    }
    // No case at all: until an interrupt.
    last.store(true);
    EXPECT_TRUE(IsInterrupted(
        Select({}, Deadline::After(std::chrono::hours::max())).status()));
  });
  AwaitSelecting(selecting);
  EXPECT_TRUE(selecting.Interrupt());
  Await([&] { return last.load(); });
  EXPECT_TRUE(selecting.Interrupt());
  EXPECT_TRUE(selecting.Join().ok());
  EXPECT_EQ(channel.TrySend(1), ChannelResult::kWouldWait);
}

TEST_F(SelectTest, FromAnOperationOnlyByTry) {
  Channel<int> channel(1);
  EXPECT_TRUE(runtime_
                  ->AtSafepoint("op",
                                [&](World&) {
                                  int value = 1;
                                  SendCase<int> send(&channel, value);
                                  SelectCase* const cases[] = {&send};
                                  EXPECT_TRUE(absl::IsFailedPrecondition(
                                      Select(cases).status()));
                                  EXPECT_EQ(TrySelect(cases),
                                            std::optional<size_t>(0));
                                })
                  .ok());
}

}  // namespace
}  // namespace stillpoint
