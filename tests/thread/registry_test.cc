#include "runtime/thread/registry.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/thread_state.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/wait_word.h"
#include "tests/os/thread_watch.h"

namespace stillpoint {
namespace {

class RegistryTest : public ::testing::Test {
 protected:
  Thread& Admit(std::string_view name = {}) {
    absl::StatusOr<Thread*> admitted = registry_->Admit({.name = name});
    if (!admitted.ok()) {
      ADD_FAILURE() << admitted.status();
      std::abort();
    }
    return **admitted;
  }
  void End(Thread& thread) {
    registry_->Leave(thread);
    registry_->Retire(thread);
  }

  const std::shared_ptr<Registry> registry_ =
      std::make_shared<Registry>(RegistryOptions());
};

TEST_F(RegistryTest, AnAdmittedThreadIsCountedAndNotYetSeen) {
  const uint64_t changes = registry_->changes_done();
  Thread& thread = Admit("one");
  EXPECT_EQ(registry_->population(), 1u);
  EXPECT_EQ(registry_->changes_done(), changes);
  EXPECT_FALSE(IsMember(thread.state()));
  EXPECT_EQ(thread.name(), "one");
  EXPECT_EQ(thread.tid(), 0);

  registry_->Publish(thread, ThreadState::kNew);
  EXPECT_EQ(thread.state(), ThreadState::kNew);
  EXPECT_EQ(registry_->changes_done(), changes + 1);

  registry_->Leave(thread);
  EXPECT_EQ(thread.state(), ThreadState::kTerminated);
  EXPECT_EQ(registry_->changes_done(), changes + 2);
  EXPECT_EQ(registry_->population(), 1u);
  registry_->Retire(thread);
  EXPECT_EQ(registry_->population(), 0u);
}

TEST_F(RegistryTest, IdsAreNeverUsedAgainAndNameTheNameless) {
  Thread& first = Admit();
  const uint64_t id = first.id();
  EXPECT_EQ(first.name(), "thread-" + std::to_string(id));
  registry_->Publish(first, ThreadState::kNative);
  End(first);
  Thread& second = Admit();
  EXPECT_EQ(&second, &first);  // the same slot
  EXPECT_NE(second.id(), id);
  registry_->Publish(second, ThreadState::kNative);
  End(second);
}

// What one thread leaves behind must not be the next one's.
TEST_F(RegistryTest, ASlotIsCleanForItsNextThread) {
  Thread& first = Admit();
  registry_->Publish(first, ThreadState::kNative);
  first.record().wait.Set(WaitWord::kPermit | WaitWord::kInterrupt);
  first.poll_word().fetch_or(kPollSafepoint | kPollWaited);
  first.record().tid.store(42);
  first.record().stack.high = 1;
  first.record().saved.stack_pointer = 1;
  first.record().arrived_at.store(1);
  End(first);

  Thread& second = Admit();
  ASSERT_EQ(&second, &first);
  EXPECT_EQ(second.record().wait.Peek(), 0u);
  EXPECT_EQ(second.poll_word().load(), 0u);
  EXPECT_EQ(second.tid(), 0);
  EXPECT_EQ(second.record().stack.high, 0u);
  EXPECT_EQ(second.record().saved.stack_pointer, 0u);
  EXPECT_EQ(second.record().arrived_at.load(), 0);
  registry_->Publish(second, ThreadState::kNative);
  End(second);
}

TEST_F(RegistryTest, NobodyIsAdmittedOnceItIsClosing) {
  Thread& thread = Admit();
  registry_->Publish(thread, ThreadState::kNative);
  EXPECT_FALSE(registry_->closing());
  registry_->BeginClosing();
  EXPECT_TRUE(registry_->closing());
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<Thread*> refused = registry_->Admit({.name = "late"});
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()))
        << refused.status();
  }
  EXPECT_EQ(registry_->population(), 1u);
  End(thread);
  EXPECT_EQ(registry_->population(), 0u);
}

TEST_F(RegistryTest, AwaitingThePopulation) {
  EXPECT_TRUE(registry_->AwaitPopulation(0, Deadline::AtMonotonicNanos(0)));
  Thread& thread = Admit();
  registry_->Publish(thread, ThreadState::kNative);
  registry_->BeginClosing();
  EXPECT_TRUE(registry_->AwaitPopulation(1, Deadline::AtMonotonicNanos(0)));
  EXPECT_FALSE(registry_->AwaitPopulation(0, Deadline::AtMonotonicNanos(0)));
  EXPECT_FALSE(registry_->AwaitPopulation(
      0, Deadline::After(std::chrono::milliseconds(5))));

  std::atomic<pid_t> tid{0};
  std::thread waiter([&] {
    tid.store(CurrentTid());
    EXPECT_TRUE(registry_->AwaitPopulation(0, Deadline::Infinite()));
  });
  while (tid.load() == 0) sched_yield();
  testing::AwaitSleeping(tid.load());
  End(thread);
  waiter.join();
}

// Who begins to close sees every member that was not refused.
TEST_F(RegistryTest, AdmissionAndClosingDoNotMissEachOther) {
  for (int i = 0; i < 200; ++i) {
    const auto registry = std::make_shared<Registry>(RegistryOptions());
    std::atomic<bool> entered{false};
    std::atomic<bool> left{false};
    std::thread member([&] {
      absl::StatusOr<Thread*> admitted = registry->Admit({});
      if (!admitted.ok()) return;
      entered.store(true);
      registry->Publish(**admitted, ThreadState::kNative);
      registry->Leave(**admitted);
      left.store(true);
      registry->Retire(**admitted);
    });
    if (i % 2 == 0) sched_yield();
    registry->BeginClosing();
    EXPECT_TRUE(registry->AwaitPopulation(0, Deadline::Infinite()));
    EXPECT_EQ(entered.load(), left.load());
    member.join();
    EXPECT_EQ(entered.load(), left.load());
  }
}

TEST_F(RegistryTest, InterruptsMembersOnly) {
  Thread& caller = Admit();
  Thread& member = Admit();
  Thread& unpublished = Admit();
  Thread& leaving = Admit();
  registry_->Publish(caller, ThreadState::kNative);
  registry_->Publish(member, ThreadState::kBlocked);
  registry_->Publish(leaving, ThreadState::kNative);
  registry_->Leave(leaving);

  registry_->InterruptAll(&caller);
  EXPECT_FALSE(caller.interrupted());
  EXPECT_TRUE(member.interrupted());
  EXPECT_FALSE(unpublished.interrupted());
  EXPECT_FALSE(leaving.interrupted());
  registry_->InterruptAll(nullptr);
  EXPECT_TRUE(caller.interrupted());

  registry_->Retire(leaving);
  registry_->Publish(unpublished, ThreadState::kNative);
  for (Thread* thread : {&caller, &member, &unpublished}) End(*thread);
}

// A stop that may count it as a member has to be over before its slot goes.
TEST_F(RegistryTest, LeavingWaitsForTheEndOfAStop) {
  StopControl& control = registry_->control();
  Thread& thread = Admit();
  registry_->Publish(thread, ThreadState::kNative);
  control.stop_word.store(1);
  std::atomic<pid_t> tid{0};
  std::atomic<bool> left{false};
  std::thread leaver([&] {
    tid.store(CurrentTid());
    registry_->Leave(thread);
    left.store(true);
  });
  while (tid.load() == 0) sched_yield();
  testing::AwaitSleeping(tid.load());
  EXPECT_FALSE(left.load());
  EXPECT_EQ(thread.state(), ThreadState::kTerminated);
  control.stop_word.store(2, std::memory_order_release);
  FutexWake(control.stop_word, 1);
  leaver.join();
  registry_->Retire(thread);
}

TEST_F(RegistryTest, LivesAsLongAsAMember) {
  auto registry = std::make_shared<Registry>(RegistryOptions());
  const std::weak_ptr<Registry> watch = registry;
  absl::StatusOr<Thread*> admitted = registry->Admit({});
  ASSERT_TRUE(admitted.ok());
  Registry& raw = *registry;
  raw.Publish(**admitted, ThreadState::kNative);
  registry = nullptr;
  EXPECT_FALSE(watch.expired());
  raw.Leave(**admitted);
  raw.Retire(**admitted);
  EXPECT_TRUE(watch.expired());
}

}  // namespace
}  // namespace stillpoint
