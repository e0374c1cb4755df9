#include "tests/support/busy_mutators.h"

#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/await.h"

namespace stillpoint::testing {

BusyMutators::BusyMutators(Runtime& runtime, StopCanary& canary, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    mutators_.push_back(std::make_unique<Mutator>());
    Mutator* mutator = mutators_.back().get();
    ThreadOptions options;
    options.name = "busy-" + std::to_string(i);
    absl::StatusOr<ThreadHandle> started =
        runtime.Start(std::move(options), [this, mutator, &canary] {
          // Else each start has to get a processor from all before it.
          Await([this] { return begin_.load(); });
          ManagedScope managed;
          Thread& self = Thread::CurrentOrDie();
          // relaxed, so that only the safepoint orders anything.
          while (!stop_.load(std::memory_order_relaxed)) {
            {
              StopCanary::Work work(canary);
              ++mutator->unprotected;
              mutator->progress.fetch_add(1, std::memory_order_relaxed);
            }
            Poll(self);
          }
        });
    EXPECT_TRUE(started.ok()) << started.status();
    if (started.ok()) mutator->handle = *std::move(started);
  }
  begin_.store(true);
}

void BusyMutators::AwaitProgress() const {
  std::vector<uint64_t> before;
  for (const auto& mutator : mutators_) {
    before.push_back(mutator->progress.load(std::memory_order_relaxed));
  }
  for (size_t i = 0; i < mutators_.size(); ++i) {
    Await([&] {
      return mutators_[i]->progress.load(std::memory_order_relaxed) !=
             before[i];
    });
  }
}

uint64_t BusyMutators::Progress() const {
  uint64_t sum = 0;
  for (const auto& mutator : mutators_) {
    sum += mutator->progress.load(std::memory_order_relaxed);
  }
  return sum;
}

uint64_t BusyMutators::UnprotectedSum() const {
  uint64_t sum = 0;
  for (const auto& mutator : mutators_) sum += mutator->unprotected;
  return sum;
}

void BusyMutators::Stop() {
  stop_.store(true);
  for (const auto& mutator : mutators_) {
    const absl::Status joined = mutator->handle.Join();
    EXPECT_TRUE(joined.ok()) << joined;
  }
  mutators_.clear();
}

}  // namespace stillpoint::testing
