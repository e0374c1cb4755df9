// The embedder's pointers in threads, and their destructors.

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/os/os_thread.h"
#include "runtime/stillpoint.h"
#include "tests/os/thread_watch.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using ::testing::HasSubstr;
using testing::StartOrFail;

class ThreadLocalTest : public ::testing::Test {
 protected:
  ThreadLocalSlot Create(ThreadLocalSlot::Destructor destructor = nullptr) {
    const absl::StatusOr<ThreadLocalSlot> slot =
        runtime_->CreateThreadLocalSlot(destructor);
    EXPECT_TRUE(slot.ok()) << slot.status();
    return slot.value_or(ThreadLocalSlot());
  }
  // On a thread that has ended, slot and all, when this returns.
  template <typename F>
  void OnThread(F body) {
    pid_t tid = 0;
    EXPECT_TRUE(StartOrFail(*runtime_, "",
                            [&] {
                              tid = CurrentTid();
                              body();
                            })
                    .Join()
                    .ok());
    // Joiners go on a little before the slot is free.
    testing::AwaitGone(tid);
  }

  const std::unique_ptr<Runtime> runtime_ = testing::MakeRuntime();
};

// What destructors see: they are plain functions.
std::atomic<int> calls{0};
std::atomic<void*> last_value{nullptr};
std::atomic<pid_t> last_tid{0};
std::atomic<ThreadState> last_state{ThreadState::kVacant};
ThreadLocalSlot own_slot;
ThreadLocalSlot other_slot;

void Record(void* value) {
  calls.fetch_add(1);
  last_value.store(value);
  last_tid.store(CurrentTid());
  last_state.store(Thread::CurrentOrDie().state());
  // Cleared before the call.
  EXPECT_EQ(Thread::CurrentOrDie().local(own_slot), nullptr);
}

TEST_F(ThreadLocalTest, EachThreadHasItsOwn) {
  const ThreadLocalSlot a = Create();
  const ThreadLocalSlot b = Create();
  for (int i = 0; i < 3; ++i) {  // in the same slot of the table
    OnThread([&] {
      int x = 0, y = 0;
      Thread& self = Thread::CurrentOrDie();
      EXPECT_EQ(self.local(a), nullptr);
      EXPECT_EQ(self.local(b), nullptr);
      self.set_local(a, &x);
      self.set_local(b, &y);
      EXPECT_EQ(self.local(a), &x);
      EXPECT_EQ(self.local(b), &y);
    });
  }
}

TEST_F(ThreadLocalTest, OperationsReadThem) {
  const ThreadLocalSlot slot = Create();
  int x = 0;
  OnThread([&] {
    Thread::CurrentOrDie().set_local(slot, &x);
    void* seen = nullptr;
    EXPECT_TRUE(runtime_
                    ->AtSafepoint("look",
                                  [&](World& world) {
                                    world.ForEachThread(
                                        [&](const StoppedThread& thread) {
                                          seen = thread.local(slot);
                                        });
                                  })
                    .ok());
    EXPECT_EQ(seen, &x);
  });
}

TEST_F(ThreadLocalTest, ADestructorRunsOnItsThreadInNative) {
  own_slot = Create(&Record);
  calls.store(0);
  int x = 0;
  pid_t tid = 0;
  OnThread([&] {
    tid = CurrentTid();
    ManagedScope managed;
    Thread::CurrentOrDie().set_local(own_slot, &x);
  });
  EXPECT_EQ(calls.load(), 1);
  EXPECT_EQ(last_value.load(), &x);
  EXPECT_EQ(last_tid.load(), tid);
  EXPECT_EQ(last_state.load(), ThreadState::kNative);
  // Neither for a value that is null again, nor for one never set.
  OnThread([&] {
    Thread::CurrentOrDie().set_local(own_slot, &x);
    Thread::CurrentOrDie().set_local(own_slot, nullptr);
  });
  OnThread([] {});
  EXPECT_EQ(calls.load(), 1);
}

TEST_F(ThreadLocalTest, AValueWithoutADestructorIsDropped) {
  const ThreadLocalSlot slot = Create(nullptr);
  int x = 0;
  OnThread([&] { Thread::CurrentOrDie().set_local(slot, &x); });
  OnThread([&] { EXPECT_EQ(Thread::CurrentOrDie().local(slot), nullptr); });
}

TEST_F(ThreadLocalTest, ADestructorMaySetAnother) {
  own_slot = Create(&Record);
  other_slot = Create(
      +[](void* value) { Thread::CurrentOrDie().set_local(own_slot, value); });
  calls.store(0);
  int x = 0;
  OnThread([&] { Thread::CurrentOrDie().set_local(other_slot, &x); });
  EXPECT_EQ(calls.load(), 1);
  EXPECT_EQ(last_value.load(), &x);
}

TEST_F(ThreadLocalTest, FourRoundsAtMostAndNothingIsLeftBehind) {
  own_slot = Create(+[](void* value) {
    calls.fetch_add(1);
    Thread::CurrentOrDie().set_local(own_slot, value);
  });
  calls.store(0);
  int x = 0;
  OnThread([&] { Thread::CurrentOrDie().set_local(own_slot, &x); });
  EXPECT_EQ(calls.load(), 4);
  // The next thread lives in the same slot of the table.
  OnThread([] { EXPECT_EQ(Thread::CurrentOrDie().local(own_slot), nullptr); });
  EXPECT_EQ(calls.load(), 4);
}

TEST_F(ThreadLocalTest, DestructorsRunAtTheLastDetach) {
  own_slot = Create(&Record);
  calls.store(0);
  int x = 0;
  std::thread([&] {
    ASSERT_TRUE(runtime_->AttachCurrentThread().ok());
    Thread::CurrentOrDie().set_local(own_slot, &x);
    ASSERT_TRUE(runtime_->AttachCurrentThread().ok());
    ASSERT_TRUE(runtime_->DetachCurrentThread().ok());
    EXPECT_EQ(calls.load(), 0);
    ASSERT_TRUE(runtime_->DetachCurrentThread().ok());
    EXPECT_EQ(calls.load(), 1);
  }).join();
  EXPECT_EQ(calls.load(), 1);
}

TEST_F(ThreadLocalTest, DestructorsRunForAThreadThatEndsAttached) {
  own_slot = Create(&Record);
  calls.store(0);
  int x = 0;
  std::thread([&] {
    ASSERT_TRUE(runtime_->AttachCurrentThread().ok());
    Thread::CurrentOrDie().set_local(own_slot, &x);
    alignas(ManagedScope) std::byte scope[sizeof(ManagedScope)];
    new (scope) ManagedScope();  // never closed
  }).join();
  EXPECT_EQ(calls.load(), 1);
  EXPECT_EQ(last_state.load(), ThreadState::kNative);
}

TEST_F(ThreadLocalTest, ARuntimeHasALimitedNumber) {
  std::set<uint32_t> indices;
  for (size_t i = 0; i < ThreadLocalSlot::kMaxSlots; ++i) {
    EXPECT_TRUE(indices.insert(Create().index).second);
  }
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = runtime_->CreateThreadLocalSlot().status();
    EXPECT_TRUE(absl::IsResourceExhausted(status));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::to_string(ThreadLocalSlot::kMaxSlots)));
  }
  // The last one works, and another runtime has its own.
  OnThread([&] {
    int x = 0;
    const ThreadLocalSlot last{ThreadLocalSlot::kMaxSlots - 1};
    Thread::CurrentOrDie().set_local(last, &x);
    EXPECT_EQ(Thread::CurrentOrDie().local(last), &x);
  });
  EXPECT_TRUE(testing::MakeRuntime()->CreateThreadLocalSlot().ok());
}

// A destructor that detaches would give the slot away twice.
TEST_F(ThreadLocalTest, ADestructorCannotDetachOnceMore) {
  struct Value {
    Runtime* runtime;
    absl::Status status;
  } value = {runtime_.get(), absl::OkStatus()};
  const ThreadLocalSlot slot = Create([](void* pointer) {
    Value& value = *static_cast<Value*>(pointer);
    // A pair of its own is no detach of the thread.
    { AttachScope nested(*value.runtime); }
    value.status = value.runtime->DetachCurrentThread();
  });
  for (const bool explicitly : {true, false}) {
    value.status = absl::OkStatus();
    std::thread([&] {
      ASSERT_TRUE(runtime_->AttachCurrentThread("visitor").ok());
      Thread::CurrentOrDie().set_local(slot, &value);
      if (explicitly) {
        EXPECT_TRUE(runtime_->DetachCurrentThread().ok());
      }
    }).join();
    EXPECT_TRUE(absl::IsFailedPrecondition(value.status)) << value.status;
    EXPECT_EQ(runtime_->ThreadCount(), 0u);
  }
}

TEST_F(ThreadLocalTest, ConcurrentCreationGivesEachOutOnce) {
  std::atomic<int> given[ThreadLocalSlot::kMaxSlots] = {};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < ThreadLocalSlot::kMaxSlots / 2; ++i) {
        const absl::StatusOr<ThreadLocalSlot> slot =
            runtime_->CreateThreadLocalSlot();
        slot.ok() ? given[slot->index].fetch_add(1) : refused.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::atomic<int>& times : given) EXPECT_EQ(times.load(), 1);
  EXPECT_EQ(refused.load(), static_cast<int>(ThreadLocalSlot::kMaxSlots));
}

}  // namespace
}  // namespace stillpoint
