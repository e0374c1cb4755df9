// Several runtimes in one process do not know of each other: threads that move
// from one to the next, stops in all of them, members of one that ask another.

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/busy_mutators.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::BusyMutators;
using testing::Configuration;
using testing::StartOrFail;
using testing::StopAndCheck;

// A runtime with its canary; one in each configuration.
struct House {
  explicit House(const Configuration& configuration)
      : runtime(testing::MakeRuntime(testing::TestOptions(configuration))) {}
  StopCanary canary;
  std::unique_ptr<Runtime> runtime;
};

TEST(SeveralRuntimesTest, StormsSideBySide) {
  constexpr int kRounds = 25;
  std::vector<std::unique_ptr<House>> houses;
  for (const Configuration& configuration : testing::AllConfigurations()) {
    houses.push_back(std::make_unique<House>(configuration));
    ASSERT_NE(houses.back()->runtime, nullptr);
  }
  std::vector<std::thread> threads;
  for (auto& house : houses) {
    threads.emplace_back([&house = *house] {
      BusyMutators busy(*house.runtime, house.canary, 1);
      for (int i = 0; i < kRounds; ++i) {
        StopAndCheck(*house.runtime, house.canary);
        StartOrFail(*house.runtime, "short", [&house] {
          ManagedScope managed;
          StopCanary::Work work(house.canary);
        });
      }
    });
  }
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&houses] {
      for (int i = 0; i < kRounds; ++i) {
        for (auto& house : houses) {
          AttachScope attached(*house->runtime, "traveller");
          EXPECT_TRUE(attached.status().ok());
          {
            ManagedScope managed;
            { StopCanary::Work work(house->canary); }
            Poll();
          }
          // A member of one asks the next one to stop.
          House& next = *houses[i % houses.size()];
          StopAndCheck(*next.runtime, next.canary);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& house : houses) {
    EXPECT_TRUE(house->runtime->Shutdown(Deadline::Infinite()).ok());
    EXPECT_EQ(house->canary.violations(), 0u);
  }
}

// Runtimes that come and go beside one that stays.
TEST(SeveralRuntimesTest, ComeAndGoBesideOneThatStays) {
  House stays({FencePolicy::kMembarrier, StartProtocol::kOutside});
  ASSERT_NE(stays.runtime, nullptr);
  std::atomic<bool> done{false};
  std::thread stopper([&] {
    BusyMutators busy(*stays.runtime, stays.canary, 1);
    while (!done.load()) StopAndCheck(*stays.runtime, stays.canary);
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([] {
      for (const Configuration& configuration : testing::AllConfigurations()) {
        House house(configuration);
        ASSERT_NE(house.runtime, nullptr);
        {
          BusyMutators busy(*house.runtime, house.canary, 1);
          busy.AwaitProgress();
          StopAndCheck(*house.runtime, house.canary);
        }
        house.runtime = nullptr;
        EXPECT_EQ(house.canary.violations(), 0u);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done.store(true);
  stopper.join();
  EXPECT_EQ(stays.canary.violations(), 0u);
}

}  // namespace
}  // namespace stillpoint
