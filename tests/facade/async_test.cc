// Operations that nobody waits for, coalescing, and periodic stops.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"

namespace stillpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Recorder : public EventSink {
 public:
  void OnSafepoint(const SafepointRecord& record) override {
    if (std::string(record.operation) == "periodic") periodic_.fetch_add(1);
    stops_.fetch_add(1);
  }
  int periodic() const { return periodic_.load(); }
  int stops() const { return stops_.load(); }

 private:
  std::atomic<int> periodic_{0};
  std::atomic<int> stops_{0};
};

class TestOperation : public VmOperation {
 public:
  explicit TestOperation(std::function<void(World&)> run, int kind = 0)
      : run_(std::move(run)), kind_(kind) {}
  ~TestOperation() override {
    if (destroyed_ != nullptr) destroyed_->fetch_add(1);
  }
  std::string_view name() const override { return "test"; }
  void Run(World& world) override { run_(world); }
  bool CoalescesWith(const VmOperation& queued) const override {
    const auto* other = dynamic_cast<const TestOperation*>(&queued);
    return kind_ != 0 && other != nullptr && other->kind_ == kind_;
  }
  void CountDestruction(std::atomic<int>& destroyed) {
    destroyed_ = &destroyed;
  }

 private:
  std::function<void(World&)> run_;
  const int kind_;
  std::atomic<int>* destroyed_ = nullptr;
};

std::unique_ptr<Runtime> MakeRuntime(Options options = Options()) {
  options.min_mutator_time = std::chrono::nanoseconds(0);
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create(options);
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  return *std::move(runtime);
}

TEST(ExecuteAsyncTest, RunsInOrderAndDestroysWhatItRan) {
  auto runtime = MakeRuntime();
  std::vector<int> order;  // written on the VM thread alone
  std::atomic<int> destroyed{0};
  for (int i = 0; i < 3; ++i) {
    auto operation = std::make_unique<TestOperation>([&order, i](World& world) {
      EXPECT_TRUE(world.stopped());
      order.push_back(i);
    });
    operation->CountDestruction(destroyed);
    ASSERT_TRUE(runtime->ExecuteAsync(std::move(operation)).ok());
  }
  // Queued behind them, so they have run when this has.
  ASSERT_TRUE(runtime->AtSafepoint("last", [](World&) {}).ok());
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  ASSERT_TRUE(runtime->Shutdown(Deadline::Infinite()).ok());
  EXPECT_EQ(destroyed.load(), 3);
}

TEST(ExecuteAsyncTest, ManagedRequestersGoOnWithoutWaiting) {
  auto runtime = MakeRuntime();
  std::atomic<int> runs{0};
  absl::StatusOr<ThreadHandle> mutator = runtime->Start([&] {
    ManagedScope managed;
    for (int i = 0; i < 1000; ++i) {
      EXPECT_TRUE(runtime
                      ->ExecuteAsync(std::make_unique<TestOperation>(
                          [&](World&) { runs.fetch_add(1); }))
                      .ok());
      Poll();
    }
  });
  ASSERT_TRUE(mutator.ok());
  ASSERT_TRUE(mutator->Join().ok());
  ASSERT_TRUE(runtime->Shutdown(Deadline::Infinite()).ok());
  EXPECT_EQ(runs.load(), 1000);
}

TEST(ExecuteAsyncTest, FromInsideAnOperationItRunsInALaterStop) {
  Recorder recorder;
  Options options;
  options.event_sink = &recorder;
  auto runtime = MakeRuntime(options);
  int stops_before = -1;
  int stops_inside = -1;
  ASSERT_TRUE(
      runtime
          ->AtSafepoint(
              "outer",
              [&](World&) {
                stops_before = recorder.stops();
                EXPECT_TRUE(
                    runtime
                        ->ExecuteAsync(std::make_unique<TestOperation>(
                            [&](World&) { stops_inside = recorder.stops(); }))
                        .ok());
              })
          .ok());
  ASSERT_TRUE(runtime->Shutdown(Deadline::Infinite()).ok());
  EXPECT_EQ(stops_inside, stops_before + 1);
}

TEST(ExecuteAsyncTest, RefusalsDestroyTheOperation) {
  auto runtime = MakeRuntime();
  EXPECT_TRUE(absl::IsInvalidArgument(runtime->ExecuteAsync(nullptr)));
  std::atomic<int> destroyed{0};
  const auto request = [&] {
    auto operation = std::make_unique<TestOperation>([](World&) { FAIL(); });
    operation->CountDestruction(destroyed);
    return runtime->ExecuteAsync(std::move(operation));
  };
  {
    const NoSafepointScope no_safepoint;
    EXPECT_TRUE(absl::IsFailedPrecondition(request()));
  }
  ASSERT_TRUE(runtime->Shutdown(Deadline::Infinite()).ok());
  const absl::Status late = request();
  EXPECT_TRUE(absl::IsFailedPrecondition(late));
  EXPECT_THAT(std::string(late.message()), HasSubstr("shutdown had begun"));
  EXPECT_EQ(destroyed.load(), 2);
}

// Holds the VM thread in an operation without a safepoint while it lives.
class QueueHolder {
 public:
  explicit QueueHolder(Runtime& runtime)
      : thread_([this, &runtime] {
          Holding operation(*this);
          EXPECT_TRUE(runtime.Execute(operation).ok());
        }) {
    while (!inside_.load()) std::this_thread::yield();
  }
  void Release() {
    released_.store(true);
    thread_.join();
  }

 private:
  class Holding : public VmOperation {
   public:
    explicit Holding(QueueHolder& holder) : holder_(holder) {}
    std::string_view name() const override { return "hold"; }
    bool needs_safepoint() const override { return false; }
    void Run(World& world) override {
      EXPECT_FALSE(world.stopped());
      holder_.inside_.store(true);
      while (!holder_.released_.load()) std::this_thread::yield();
    }

   private:
    QueueHolder& holder_;
  };

  std::atomic<bool> inside_{false};
  std::atomic<bool> released_{false};
  std::thread thread_;
};

TEST(CoalesceTest, EqualQueuedOperationsRunOnceAndAllRequestersReturn) {
  auto runtime = MakeRuntime();
  QueueHolder holder(*runtime);
  std::atomic<int> runs{0};
  const auto count = [&](World&) { runs.fetch_add(1); };
  // The first one is queued before anybody can coalesce with it.
  ASSERT_TRUE(
      runtime->ExecuteAsync(std::make_unique<TestOperation>(count, 1)).ok());
  std::vector<std::thread> requesters;
  for (int i = 0; i < 4; ++i) {
    requesters.emplace_back([&] {
      TestOperation operation(count, 1);
      EXPECT_TRUE(runtime->Execute(operation).ok());
      EXPECT_GE(runs.load(), 1);  // not before it has run
    });
  }
  ASSERT_TRUE(
      runtime->ExecuteAsync(std::make_unique<TestOperation>(count, 1)).ok());
  ASSERT_TRUE(
      runtime->ExecuteAsync(std::make_unique<TestOperation>(count, 2)).ok());
  ASSERT_TRUE(
      runtime->ExecuteAsync(std::make_unique<TestOperation>(count)).ok());
  ASSERT_TRUE(
      runtime->ExecuteAsync(std::make_unique<TestOperation>(count)).ok());
  holder.Release();
  for (std::thread& requester : requesters) requester.join();
  ASSERT_TRUE(runtime->Shutdown(Deadline::Infinite()).ok());
  // One of kind 2 and two that never coalesce; of kind 1 one, and one more for
  // each requester that came only after that had been taken from the queue.
  EXPECT_GE(runs.load(), 4);
  EXPECT_LE(runs.load(), 8);
}

TEST(CoalesceTest, AnOperationThatHasBegunIsNotCoalescedWith) {
  auto runtime = MakeRuntime();
  std::atomic<int> runs{0};
  TestOperation outer(
      [&](World&) {
        runs.fetch_add(1);
        // The one that runs is not queued any more: this is another run.
        EXPECT_TRUE(runtime
                        ->ExecuteAsync(std::make_unique<TestOperation>(
                            [&](World&) { runs.fetch_add(1); }, 1))
                        .ok());
      },
      1);
  ASSERT_TRUE(runtime->Execute(outer).ok());
  ASSERT_TRUE(runtime->Shutdown(Deadline::Infinite()).ok());
  EXPECT_EQ(runs.load(), 2);
}

TEST(PeriodicTest, StopsComeWithoutARequest) {
  Recorder recorder;
  Options options;
  options.event_sink = &recorder;
  options.safepoint_interval = std::chrono::milliseconds(1);
  auto runtime = MakeRuntime(options);
  while (recorder.periodic() < 5) std::this_thread::yield();
}

TEST(PeriodicTest, StopsComeAlsoBetweenOperationsThatNeedNone) {
  Recorder recorder;
  Options options;
  options.event_sink = &recorder;
  options.safepoint_interval = std::chrono::milliseconds(1);
  auto runtime = MakeRuntime(options);
  class WithoutSafepoint : public VmOperation {
   public:
    std::string_view name() const override { return "without"; }
    bool needs_safepoint() const override { return false; }
    void Run(World&) override {}
  };
  while (recorder.periodic() < 3) {
    WithoutSafepoint operation;
    ASSERT_TRUE(runtime->Execute(operation).ok());
  }
}

TEST(PeriodicTest, WithoutAnIntervalNothingStops) {
  Recorder recorder;
  Options options;
  options.event_sink = &recorder;
  auto runtime = MakeRuntime(options);
  ASSERT_TRUE(runtime->AtSafepoint("one", [](World&) {}).ok());
  ASSERT_TRUE(runtime->Shutdown(Deadline::Infinite()).ok());
  EXPECT_EQ(recorder.stops(), 1);
}

TEST(SerializeInstructionsTest, WorksOrSaysWhatToDo) {
  auto runtime = MakeRuntime();
  absl::StatusCode code = absl::StatusCode::kUnknown;
  ASSERT_TRUE(runtime
                  ->AtSafepoint("patch",
                                [&](World& world) {
                                  code = world.SerializeInstructions().code();
                                })
                  .ok());
  EXPECT_TRUE(code == absl::StatusCode::kOk ||
              code == absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace stillpoint
