// Threads that the runtime did not start.

#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/os/os_thread.h"
#include "runtime/stillpoint.h"
#include "tests/os/thread_watch.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using ::testing::HasSubstr;
using testing::MakeRuntime;
using testing::StartOrFail;

class AttachTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(AttachTest);

// Runs `f` on a thread that knows nothing of runtimes, and waits for it.
template <typename F>
void OnForeignThread(F f) {
  std::thread(f).join();
}

TEST_P(AttachTest, MakesTheCallerAMember) {
  OnForeignThread([&] {
    const std::string os_name = testing::OsThreadName(CurrentTid());
    ASSERT_EQ(Thread::Current(), nullptr);
    ASSERT_TRUE(runtime().AttachCurrentThread("visitor").ok());
    Thread& self = Thread::CurrentOrDie();
    EXPECT_EQ(self.state(), ThreadState::kNative);
    EXPECT_EQ(self.name(), "visitor");
    EXPECT_EQ(self.tid(), CurrentTid());
    EXPECT_EQ(runtime().ThreadCount(), 1u);
    EXPECT_TRUE(CurrentThreadHandle().alive());
    // The name that the system shows is the embedder's.
    EXPECT_EQ(testing::OsThreadName(CurrentTid()), os_name);
    {
      ManagedScope managed;
      Poll();
    }
    const ThreadHandle handle = CurrentThreadHandle();
    ASSERT_TRUE(runtime().DetachCurrentThread().ok());
    EXPECT_EQ(Thread::Current(), nullptr);
    EXPECT_FALSE(handle.alive());
    EXPECT_EQ(runtime().ThreadCount(), 0u);
  });
}

TEST_P(AttachTest, AgainAndAgain) {
  OnForeignThread([&] {
    for (int i = 0; i < 200; ++i) {
      AttachScope attached(runtime());
      ASSERT_TRUE(attached.status().ok());
      ManagedScope managed;
      Poll();
    }
  });
}

TEST_P(AttachTest, NestsIncidentD11) {
  OnForeignThread([&] {
    ASSERT_TRUE(runtime().AttachCurrentThread("outer").ok());
    Thread* const self = Thread::Current();
    ASSERT_TRUE(runtime().AttachCurrentThread("ignored").ok());
    {
      AttachScope third(runtime());
      ASSERT_TRUE(third.status().ok());
    }
    EXPECT_EQ(Thread::Current(), self);
    EXPECT_EQ(self->name(), "outer");
    EXPECT_EQ(runtime().ThreadCount(), 1u);
    EXPECT_TRUE(runtime().DetachCurrentThread().ok());
    EXPECT_EQ(Thread::Current(), self);
    EXPECT_TRUE(runtime().DetachCurrentThread().ok());
    EXPECT_EQ(Thread::Current(), nullptr);
    EXPECT_TRUE(absl::IsFailedPrecondition(runtime().DetachCurrentThread()));
  });
}

// A callback from managed code does not know that it is attached.
TEST_P(AttachTest, NestsInsideManagedIncidentD11) {
  OnForeignThread([&] {
    AttachScope attached(runtime());
    ASSERT_TRUE(attached.status().ok());
    ManagedScope managed;
    {
      AttachScope inner(runtime());
      ASSERT_TRUE(inner.status().ok());
      EXPECT_EQ(Thread::CurrentOrDie().state(), ThreadState::kManaged);
    }
    EXPECT_EQ(Thread::CurrentOrDie().state(), ThreadState::kManaged);
    Poll();
  });
}

TEST_P(AttachTest, NestsInStartedThreadsIncidentD11) {
  const ThreadHandle handle = StartOrFail(runtime(), "started", [&] {
    Thread* const self = Thread::Current();
    for (int i = 0; i < 3; ++i) {
      AttachScope outer(runtime());
      ASSERT_TRUE(outer.status().ok());
      AttachScope inner(runtime());
      ASSERT_TRUE(inner.status().ok());
    }
    EXPECT_EQ(Thread::Current(), self);
    EXPECT_EQ(self->state(), ThreadState::kNative);
    // It detaches by returning only.
    const absl::Status detached = runtime().DetachCurrentThread();
    EXPECT_TRUE(absl::IsFailedPrecondition(detached)) << detached;
    ManagedScope managed;
    Poll();
  });
  EXPECT_TRUE(handle.Join().ok());
}

TEST_P(AttachTest, OneRuntimeAtATime) {
  const std::unique_ptr<Runtime> other = MakeRuntime();
  OnForeignThread([&] {
    AttachScope attached(runtime(), "visitor");
    ASSERT_TRUE(attached.status().ok());
    const absl::Status second = other->AttachCurrentThread();
    EXPECT_TRUE(absl::IsFailedPrecondition(second));
    EXPECT_THAT(std::string(second.message()), HasSubstr("another runtime"));
    EXPECT_TRUE(absl::IsFailedPrecondition(other->DetachCurrentThread()));
    EXPECT_EQ(other->ThreadCount(), 0u);
    EXPECT_EQ(runtime().ThreadCount(), 1u);
    ManagedScope managed;  // still a good member of the first
    Poll();
  });
  OnForeignThread([&] {
    // One after the other is fine.
    ASSERT_TRUE(runtime().AttachCurrentThread().ok());
    ASSERT_TRUE(runtime().DetachCurrentThread().ok());
    ASSERT_TRUE(other->AttachCurrentThread().ok());
    ASSERT_TRUE(other->DetachCurrentThread().ok());
  });
}

TEST_P(AttachTest, DetachingOutsideNativeIsAnError) {
  OnForeignThread([&] {
    AttachScope attached(runtime());
    ASSERT_TRUE(attached.status().ok());
    {
      ManagedScope managed;
      const absl::Status in_managed = runtime().DetachCurrentThread();
      EXPECT_TRUE(absl::IsFailedPrecondition(in_managed));
      EXPECT_THAT(std::string(in_managed.message()),
                  HasSubstr("detaching in Managed"));
      BlockedScope blocked;
      EXPECT_TRUE(absl::IsFailedPrecondition(runtime().DetachCurrentThread()));
    }
    EXPECT_EQ(runtime().ThreadCount(), 1u);
  });
}

TEST_P(AttachTest, NeitherWithALockNorInANoSafepointScope) {
  static constexpr LockRank kRank{"Test_lock", kFirstEmbedderRank, "test"};
  OnForeignThread([&] {
    RankedMutex mutex(kRank);
    for (const bool attached : {false, true}) {
      const auto attempt = [&] {
        return attached ? runtime().DetachCurrentThread()
                        : runtime().AttachCurrentThread();
      };
      if (attached) {
        ASSERT_TRUE(runtime().AttachCurrentThread().ok());
      }
      {
        RankedMutexLock lock(mutex);
        const absl::Status status = attempt();
        EXPECT_TRUE(absl::IsFailedPrecondition(status));
        EXPECT_THAT(std::string(status.message()), HasSubstr("Test_lock"));
      }
      {
        NoSafepointScope no_safepoint;
        const absl::Status status = attempt();
        EXPECT_TRUE(absl::IsFailedPrecondition(status));
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr("NoSafepointScope"));
      }
    }
    EXPECT_TRUE(runtime().DetachCurrentThread().ok());
  });
}

TEST_P(AttachTest, AThreadThatEndsAttachedIsDetached) {
  OnForeignThread([&] {
    ASSERT_TRUE(runtime().AttachCurrentThread().ok());
    ASSERT_TRUE(runtime().AttachCurrentThread().ok());  // however deep
  });
  EXPECT_EQ(runtime().ThreadCount(), 0u);
  testing::StopAndCheck(runtime(), canary());
}

TEST_P(AttachTest, AThreadThatEndsInManagedIsDetached) {
  OnForeignThread([&] {
    ASSERT_TRUE(runtime().AttachCurrentThread().ok());
    alignas(ManagedScope) std::byte scope[sizeof(ManagedScope)];
    new (scope) ManagedScope();  // never closed
  });
  EXPECT_EQ(runtime().ThreadCount(), 0u);
  // It would keep the world from stopping.
  testing::StopAndCheck(runtime(), canary());
}

// Its destructor runs after the runtime's own hook at the thread's end, if it
// is made before the first attach; that is the hard case.
struct AttachesInDestructor {
  Runtime* runtime = nullptr;
  ~AttachesInDestructor() {
    if (runtime == nullptr) return;
    AttachScope attached(*runtime, "late");
    EXPECT_TRUE(attached.status().ok());
    ManagedScope managed;
    Poll();
  }
};

TEST_P(AttachTest, InADestructorOfAThreadLocal) {
  OnForeignThread([&] {
    static thread_local AttachesInDestructor late;
    late.runtime = &runtime();
    ASSERT_TRUE(runtime().AttachCurrentThread().ok());
  });
  EXPECT_EQ(runtime().ThreadCount(), 0u);
}

TEST_P(AttachTest, IsRefusedAfterShutdownHasBegun) {
  ASSERT_TRUE(runtime().Shutdown(Deadline::Infinite()).ok());
  OnForeignThread([&] {
    EXPECT_TRUE(absl::IsFailedPrecondition(runtime().AttachCurrentThread()));
    EXPECT_EQ(Thread::Current(), nullptr);
    const AttachScope scope(runtime());
    EXPECT_FALSE(scope.status().ok());
  });
  EXPECT_EQ(runtime().ThreadCount(), 0u);
}

// It waits for the end of the stop, and is not half a member meanwhile.
TEST_P(AttachTest, DuringAStopIncidentD3) {
  std::atomic<pid_t> tid{0};
  std::atomic<bool> stopped{true};
  std::thread visitor;
  ASSERT_TRUE(runtime()
                  .AtSafepoint("hold",
                               [&](World& world) {
                                 visitor = std::thread([&] {
                                   tid.store(CurrentTid());
                                   AttachScope attached(runtime());
                                   EXPECT_TRUE(attached.status().ok());
                                   ManagedScope managed;
                                   EXPECT_FALSE(stopped.load());
                                 });
                                 Await([&] { return tid.load() != 0; });
                                 testing::AwaitSleeping(tid.load());
                                 EXPECT_EQ(world.thread_count(), 0u);
                                 EXPECT_EQ(runtime().Threads().size(), 0u);
                                 stopped.store(false);
                               })
                  .ok());
  visitor.join();
  EXPECT_EQ(runtime().ThreadCount(), 0u);
}

TEST_P(AttachTest, DetachingDuringAStopWaitsForItsEnd) {
  std::atomic<pid_t> tid{0};
  std::atomic<bool> go{false};
  std::atomic<bool> detached{false};
  std::thread visitor([&] {
    ASSERT_TRUE(runtime().AttachCurrentThread("visitor").ok());
    tid.store(CurrentTid());
    Await([&] { return go.load(); });
    ASSERT_TRUE(runtime().DetachCurrentThread().ok());
    detached.store(true);
  });
  Await([&] { return tid.load() != 0; });
  ASSERT_TRUE(runtime()
                  .AtSafepoint("hold",
                               [&](World& world) {
                                 EXPECT_EQ(world.thread_count(), 1u);
                                 go.store(true);
                                 // Long enough to have gone, if it could: it
                                 // sleeps several times before it does.
                                 for (int i = 0; i < 20; ++i) {
                                   testing::AwaitSleeping(tid.load());
                                   sched_yield();
                                 }
                                 world.ForEachThread(
                                     [](const StoppedThread& thread) {
                                       EXPECT_EQ(thread.name(), "visitor");
                                     });
                                 EXPECT_FALSE(detached.load());
                               })
                  .ok());
  visitor.join();
  EXPECT_EQ(runtime().ThreadCount(), 0u);
}

// Incidents E7, D7: the thread's own end comes after the runtime's, which it
// has outstayed. It must neither block nor touch what is gone.
TEST_P(AttachTest, AnEndAfterTheRuntimesIncidentE7) {
  for (const bool in_managed : {false, true}) {
    Options options = testing::TestOptions(GetParam());
    options.shutdown_timeout = std::chrono::nanoseconds(0);
    std::unique_ptr<Runtime> short_lived = MakeRuntime(options);
    std::atomic<bool> attached{false};
    std::atomic<bool> go_on{false};
    std::thread visitor([&] {
      ASSERT_TRUE(short_lived->AttachCurrentThread("overstayer").ok());
      alignas(ManagedScope) std::byte scope[sizeof(ManagedScope)];
      if (in_managed) new (scope) ManagedScope();  // never closed
      attached.store(true);
      Await([&] { return go_on.load(); });
    });
    Await([&] { return attached.load(); });
    const absl::Status shutdown =
        short_lived->Shutdown(Deadline::AtMonotonicNanos(0));
    EXPECT_TRUE(absl::IsDeadlineExceeded(shutdown));
    EXPECT_THAT(std::string(shutdown.message()), HasSubstr("overstayer"));
    short_lived = nullptr;
    go_on.store(true);
    visitor.join();
  }
}

// The usual way to attach lazily: the thread's own object is older than its
// attachment, so it is destroyed after the thread was detached.
TEST_P(AttachTest, AScopeInAThreadLocalObjectThatIsOlder) {
  struct Lazy {
    std::unique_ptr<AttachScope> scope;
  };
  OnForeignThread([&] {
    static thread_local Lazy lazy;
    Lazy& own = lazy;  // constructed here, before the attachment
    own.scope = std::make_unique<AttachScope>(runtime(), "lazy");
    EXPECT_TRUE(own.scope->status().ok());
  });
  EXPECT_EQ(runtime().ThreadCount(), 0u);
}

// Rather refused than with an empty stack, in which a collector would find
// nothing. The main thread's is looked up in a file.
TEST_P(AttachTest, WithoutFilesTheMainThreadIsRefused) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status attached = runtime().AttachCurrentThread("main");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(attached)) << attached;
  EXPECT_THAT(std::string(attached.message()), HasSubstr("ulimit -n"));
  EXPECT_EQ(runtime().ThreadCount(), 0u);
  ASSERT_TRUE(runtime().AttachCurrentThread("main").ok());
  EXPECT_TRUE(runtime().DetachCurrentThread().ok());
}

}  // namespace
}  // namespace stillpoint
