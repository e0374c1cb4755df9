// What a thread that makes a green one ready may still look at, when that has
// run to its end and the Runtime is gone.

#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/green/scheduler.h"
#include "runtime/safepoint/serve.h"
#include "runtime/stillpoint.h"
#include "runtime/thread/fence.h"
#include "runtime/thread/registry.h"
#include "tests/base/sanitizers.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::MakeRuntime;
using testing::Rounds;
using testing::StartGreenOrFail;

std::shared_ptr<Registry> MakeRegistry() {
  RegistryOptions options;
  options.fence = ChooseFence(FencePolicy::kFull)->mode;
  options.serve_poll = &ServePoll;
  return std::make_shared<Registry>(options);
}

TEST(GreenLifetimeTest, AHandleKeepsTheCarriers) {
  std::shared_ptr<Registry> registry = MakeRegistry();
  std::weak_ptr<Scheduler> watch;
  ThreadHandle handle;
  {
    auto scheduler =
        std::make_shared<Scheduler>(*registry, SchedulerOptions{.carriers = 1});
    registry->KeepToTheEnd(scheduler);
    watch = scheduler;
    absl::StatusOr<ThreadHandle> started =
        scheduler->Start({.kind = ThreadKind::kGreen}, [] {});
    ASSERT_TRUE(started.ok()) << started.status();
    handle = *std::move(started);
    EXPECT_TRUE(handle.Join().ok());
    registry->BeginClosing();
    EXPECT_TRUE(registry->AwaitPopulation(0, Deadline::Infinite()));
    EXPECT_TRUE(scheduler->Stop(Deadline::Infinite()));
  }
  registry = nullptr;
  EXPECT_FALSE(watch.expired());
  handle = ThreadHandle();
  // The OS threads that have ended let go of it soon.
  testing::Await([&] { return watch.expired(); });
}

// An unattached thread gives the permit with which the last thread ends.
TEST(GreenLifetimeTest, AnUnattachedThreadUnparksTheLastOne) {
  for (int round = 0; round < Rounds(300); ++round) {
    std::unique_ptr<Runtime> runtime = MakeRuntime();
    const ThreadHandle parked =
        StartGreenOrFail(*runtime, "parked", [] { EXPECT_TRUE(Park().ok()); });
    std::thread waker([parked] { parked.Unpark(); });
    EXPECT_TRUE(parked.Join().ok());
    runtime = nullptr;
    waker.join();
  }
}

}  // namespace
}  // namespace stillpoint
