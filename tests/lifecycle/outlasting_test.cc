// Threads that outlast what they were attached to, and threads that attach and
// detach while they end. (Incidents C5, D9, E7.)

#include <atomic>
#include <memory>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::AwaitState;
using testing::StopAndCheck;

// Runs a function when its thread ends, in the destructor of a thread-local
// object. What was registered later runs earlier.
class AtThreadEnd {
 public:
  template <typename F>
  static void Run(F function) {
    Holder<F>::Set(std::move(function));
  }

 private:
  template <typename F>
  struct Holder {
    explicit Holder(F f) : function(std::move(f)) {}
    ~Holder() { function(); }
    static void Set(F f) { static thread_local Holder holder(std::move(f)); }
    F function;
  };
};

class OutlastingTest : public testing::RuntimeTest {
 protected:
  void SetUp() override {
    testing::RuntimeTest::SetUp();
    Options options = testing::TestOptions(GetParam());
    options.shutdown_timeout = std::chrono::nanoseconds(0);
    other_ = testing::MakeRuntime(options);
    ASSERT_NE(other_, nullptr);
  }

  // A runtime that a test destroys while threads are attached to it.
  std::unique_ptr<Runtime> other_;
};
STILLPOINT_IN_ALL_CONFIGURATIONS(OutlastingTest);

// Incident E7: the automatic detach comes after the runtime is gone.
TEST_P(OutlastingTest, ThreadEndsAttachedAfterTheRuntimeIsGone) {
  std::atomic<bool> gone{false};
  std::atomic<bool> end{false};
  std::thread guest([&] {
    EXPECT_TRUE(other_->AttachCurrentThread("guest").ok());
    {
      ManagedScope managed;
      Poll();
    }
    Await([&] { return end.load(); });
    EXPECT_TRUE(gone.load());
  });
  AwaitState(*other_, "guest", ThreadState::kNative);
  other_ = nullptr;
  gone.store(true);
  end.store(true);
  guest.join();
}

// The same while the runtime goes down at that very moment.
TEST_P(OutlastingTest, ThreadsEndWhileTheRuntimeGoesDown) {
  for (int round = 0; round < 10; ++round) {
    Options options = testing::TestOptions(GetParam());
    options.shutdown_timeout = std::chrono::nanoseconds(0);
    if (other_ == nullptr) other_ = testing::MakeRuntime(options);
    std::atomic<int> attached{0};
    std::atomic<bool> end{false};
    std::thread guests[3];
    for (std::thread& guest : guests) {
      guest = std::thread([&] {
        EXPECT_TRUE(other_->AttachCurrentThread("guest").ok());
        attached.fetch_add(1);
        while (!end.load()) {
        }
      });
    }
    Await([&] { return attached.load() == 3; });
    end.store(true);
    other_ = nullptr;
    for (std::thread& guest : guests) guest.join();
  }
}

// A thread that ends attached leaves the runtime, which goes on.
TEST_P(OutlastingTest, ThreadEndsWithoutDetaching) {
  for (int i = 0; i < 10; ++i) {
    std::thread guest([&] {
      EXPECT_TRUE(runtime().AttachCurrentThread("guest").ok());
      EXPECT_TRUE(runtime().AttachCurrentThread("again").ok());
      ManagedScope managed;
      StopCanary::Work work(canary());
    });
    guest.join();
    EXPECT_EQ(runtime().ThreadCount(), 0u);
    StopAndCheck(runtime(), canary());
  }
}

// A destructor that was registered after the attach runs while the thread is
// still attached, and may detach it.
TEST_P(OutlastingTest, DetachInATlsDestructorThatRunsFirst) {
  bool detached = false;
  std::thread guest([&] {
    EXPECT_TRUE(runtime().AttachCurrentThread("guest").ok());
    AtThreadEnd::Run([this, &detached] {
      { ManagedScope managed; }
      detached = runtime().DetachCurrentThread().ok();
    });
  });
  guest.join();
  EXPECT_TRUE(detached);
  EXPECT_EQ(runtime().ThreadCount(), 0u);
}

// One that was registered before runs after the automatic detach, and gets an
// error.
TEST_P(OutlastingTest, DetachInATlsDestructorThatRunsLast) {
  bool refused = false;
  std::thread guest([&] {
    AtThreadEnd::Run([this, &refused] {
      refused = absl::IsFailedPrecondition(runtime().DetachCurrentThread());
    });
    EXPECT_TRUE(runtime().AttachCurrentThread("guest").ok());
  });
  guest.join();
  EXPECT_TRUE(refused);
  EXPECT_EQ(runtime().ThreadCount(), 0u);
}

// It may also attach once more, as a library's clean-up code does that calls
// back in, and leave the detach to the end of the thread.
TEST_P(OutlastingTest, AttachInATlsDestructorThatRunsLast) {
  bool attached = false;
  std::thread guest([&] {
    AtThreadEnd::Run([this, &attached] {
      attached = runtime().AttachCurrentThread("late guest").ok();
      ManagedScope managed;
      StopCanary::Work work(canary());
    });
    EXPECT_TRUE(runtime().AttachCurrentThread("guest").ok());
  });
  guest.join();
  EXPECT_TRUE(attached);
  // The thread is gone, so the runtime may not count on it any more.
  EXPECT_EQ(runtime().ThreadCount(), 0u);
  StopAndCheck(runtime(), canary());
}

// Handles outlive thread and runtime.
TEST_P(OutlastingTest, HandlesOutliveTheRuntime) {
  const ThreadHandle handle = testing::StartOrFail(*other_, "thread", [] {});
  EXPECT_TRUE(handle.Join().ok());
  other_ = nullptr;
  EXPECT_FALSE(handle.alive());
  EXPECT_FALSE(handle.Unpark());
  EXPECT_FALSE(handle.Interrupt());
  EXPECT_TRUE(handle.Join().ok());
}

}  // namespace
}  // namespace stillpoint
