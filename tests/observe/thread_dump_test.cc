// Thread dumps: by handshakes and at a safepoint, of threads in each state, of
// green ones, of a deadlock, and by a signal.

#include "runtime/observe/thread_dump.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/dump_signal.h"
#include "runtime/stillpoint.h"
#include "runtime/sync/mutex.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::AwaitState;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::StartOrFail;

class ThreadDumpTest : public testing::RuntimeTest {
 protected:
  std::string Dump(ThreadDumpOptions options = ThreadDumpOptions()) {
    absl::StatusOr<std::string> dump = runtime().DumpThreads(options);
    EXPECT_TRUE(dump.ok()) << dump.status();
    return dump.ok() ? *std::move(dump) : "";
  }
  // The line of the thread of that name.
  static std::string LineOf(const std::string& dump, const std::string& name) {
    const size_t before = dump.find("\n\"" + name + "\" #");
    if (before == std::string::npos) return "";
    return dump.substr(before + 1, dump.find('\n', before + 1) - before - 1);
  }
  ThreadHandle StartParked(std::string name) {
    ThreadHandle handle = StartOrFail(runtime(), name, [] {
      ManagedScope managed;
      EXPECT_TRUE(IsInterrupted(Park()));
    });
    AwaitState(runtime(), name, ThreadState::kBlocked);
    return handle;
  }
  ThreadHandle StartPolling(std::string name) {
    ThreadHandle handle = StartOrFail(runtime(), name, [] {
      ManagedScope managed;
      Thread& self = Thread::CurrentOrDie();
      while (!self.interrupted()) Poll(self);
    });
    AwaitState(runtime(), name, ThreadState::kManaged);
    return handle;
  }
  static void End(const ThreadHandle& thread) {
    EXPECT_TRUE(thread.Interrupt());
    EXPECT_TRUE(thread.Join().ok());
  }
};
STILLPOINT_IN_ALL_CONFIGURATIONS(ThreadDumpTest);

TEST_P(ThreadDumpTest, EveryThreadBothWays) {
  const ThreadHandle parked = StartParked("parked");
  const ThreadHandle polling = StartPolling("polling");
  ASSERT_TRUE(runtime().Suspend(polling).ok());
  std::atomic<bool> end{false};
  const ThreadHandle native = StartOrFail(
      runtime(), "native", [&] { Await([&] { return end.load(); }); });
  AwaitState(runtime(), "native", ThreadState::kNative);
  for (const bool at_safepoint : {false, true}) {
    ThreadDumpOptions options;
    options.at_safepoint = at_safepoint;
    options.backtraces = true;
    options.find_deadlocks = true;
    const std::string dump = Dump(options);
    EXPECT_THAT(dump, HasSubstr(at_safepoint ? "at a safepoint: 3 threads"
                                             : "one after the other: 3"));
    EXPECT_THAT(LineOf(dump, "parked"),
                HasSubstr("tid=" + std::to_string(parked.slot()->tid()) +
                          " native Blocked, waits for permit, cpu="));
    EXPECT_THAT(LineOf(dump, "parked"),
                ContainsRegex("elapsed=.*, stack=\\[0x[0-9a-f]+, 0x"));
    EXPECT_THAT(LineOf(dump, "polling"), HasSubstr("suspended=1"));
    EXPECT_THAT(LineOf(dump, "native"), HasSubstr(" native Native, cpu="));
    EXPECT_THAT(dump, HasSubstr("    #0 "));  // of those with managed frames
    EXPECT_THAT(dump, HasSubstr("No deadlock"));
  }
  ASSERT_TRUE(runtime().Resume(polling).ok());
  // From an operation of the embedder's it is that instant.
  std::string dump;
  ASSERT_TRUE(
      runtime().AtSafepoint("asks", [&](World&) { dump = Dump(); }).ok());
  EXPECT_THAT(dump, HasSubstr("at a safepoint: 3 threads"));
  end.store(true);
  EXPECT_TRUE(native.Join().ok());
  End(parked);
  End(polling);
  EXPECT_THAT(Dump(), HasSubstr("one after the other: 0 threads"));
}

// A dump is made when something is wrong.
TEST_P(ThreadDumpTest, AThreadThatDoesNotPoll) {
  std::atomic<bool> end{false};
  const ThreadHandle deaf = StartOrFail(runtime(), "deaf", [&] {
    ManagedScope managed;
    while (!end.load()) {
    }
  });
  AwaitState(runtime(), "deaf", ThreadState::kManaged);
  const ThreadHandle parked = StartParked("parked");
  ThreadDumpOptions options;
  options.patience = std::chrono::milliseconds(1);
  const std::string dump = Dump(options);
  EXPECT_THAT(LineOf(dump, "deaf"), HasSubstr("native Managed, cpu="));
  EXPECT_THAT(LineOf(dump, "deaf"), HasSubstr("does not poll"));
  EXPECT_THAT(LineOf(dump, "parked"), Not(HasSubstr("does not poll")));
  end.store(true);
  EXPECT_TRUE(deaf.Join().ok());
  End(parked);
}

// Two native threads and a green one in a circle.
TEST_P(ThreadDumpTest, ACircleOfMutexes) {
  Mutex mutexes[3] = {Mutex("first"), Mutex("second"), Mutex("third")};
  std::atomic<int> locked{0};
  std::atomic<int> interrupted{0};
  const auto body = [&](int i) {
    ManagedScope managed;
    mutexes[i].Lock();
    locked.fetch_add(1);
    {
      BlockedScope blocked;
      Await([&] { return locked.load() == 3; });
    }
    const absl::Status taken =
        mutexes[(i + 1) % 3].LockInterruptibly(Deadline::Infinite());
    interrupted.fetch_add(IsInterrupted(taken));
    if (taken.ok()) {
      mutexes[(i + 1) % 3].AssertHeld();
      mutexes[(i + 1) % 3].Unlock();
    }
    mutexes[i].Unlock();
  };
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 3; ++i) {
    ThreadOptions options;
    options.name = "in-" + std::to_string(i);
    if (i == 2) options.kind = ThreadKind::kGreen;
    absl::StatusOr<ThreadHandle> started =
        runtime().Start(std::move(options), [&body, i] { body(i); });
    ASSERT_TRUE(started.ok()) << started.status();
    threads.push_back(*started);
  }
  const auto waits = [&](const std::string& name) {
    return LineOf(Dump(), name).find("waits for mutex") != std::string::npos;
  };
  Await([&] { return waits("in-0") && waits("in-1") && waits("in-2"); });
  for (const bool at_safepoint : {false, true}) {
    ThreadDumpOptions options;
    options.at_safepoint = at_safepoint;
    options.find_deadlocks = true;
    const std::string dump = Dump(options);
    EXPECT_THAT(LineOf(dump, "in-0"),
                HasSubstr("\"second\" owned by \"in-1\" #"));
    EXPECT_THAT(LineOf(dump, "in-2"), HasSubstr(" green Blocked"));
    EXPECT_THAT(LineOf(dump, "in-2"), HasSubstr(" switches="));
    const size_t circle = dump.find("Deadlock: ");
    ASSERT_NE(circle, std::string::npos) << dump;
    EXPECT_EQ(dump.find("Deadlock: ", circle + 1), std::string::npos) << dump;
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(dump.substr(circle),
                  HasSubstr("\"in-" + std::to_string(i) + "\" #"));
    }
  }
  // That opens the circle.
  EXPECT_TRUE(threads[0].Interrupt());
  for (const ThreadHandle& thread : threads) {
    EXPECT_TRUE(thread.Join().ok());
  }
  EXPECT_EQ(interrupted.load(), 1);
}

TEST_P(ThreadDumpTest, WhereItIsRefused) {
  AttachScope attached(runtime(), "self");
  ASSERT_TRUE(runtime()
                  .Handshake(CurrentThreadHandle(), "inside",
                             [&](Thread&) {
                               EXPECT_FALSE(runtime().DumpThreads().ok());
                             })
                  .ok());
  EXPECT_THAT(Dump(), HasSubstr("\"self\" #"));
}

TEST_P(ThreadDumpTest, BySignal) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int signal = SIGRTMIN + 5;
  const ThreadHandle parked = StartParked("parked");
  {
    absl::StatusOr<std::unique_ptr<DumpOnSignal>> on_signal =
        DumpOnSignal::Create(runtime(), signal, ends[1]);
    ASSERT_TRUE(on_signal.ok()) << on_signal.status();
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(kill(getpid(), signal), 0);
      std::string text;
      char buffer[512];
      while (text.find("\"parked\"") == std::string::npos ||
             text.back() != '\n') {
        const ssize_t n = read(ends[0], buffer, sizeof(buffer));
        ASSERT_GT(n, 0);
        text.append(buffer, static_cast<size_t>(n));
      }
      EXPECT_THAT(text, HasSubstr("Thread dump, one after the other"));
    }
  }
  // Nobody listens any more; it does no harm.
  ASSERT_EQ(kill(getpid(), signal), 0);
  EXPECT_FALSE(DumpOnSignal::Create(runtime(), SIGKILL, ends[1]).ok());
  End(parked);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace stillpoint
