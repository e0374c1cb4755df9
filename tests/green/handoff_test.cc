// A green thread that is held up in native code, and those that wait behind it.
// Incident I10.

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/check.h"
#include "runtime/stillpoint.h"
#include "tests/base/sanitizers.h"
#include "tests/os/thread_watch.h"
#include "tests/support/await.h"
#include "tests/support/recording_sink.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::AwaitState;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::kAsan;
using testing::kTsan;
using testing::StartGreenOrFail;

// Read() returns when somebody has written.
class Pipe {
 public:
  Pipe() { STILLPOINT_CHECK(pipe(ends_) == 0, "no pipe"); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void Write() const {
    const char byte = 0;
    STILLPOINT_CHECK(write(ends_[1], &byte, 1) == 1, "the pipe is full");
  }
  void Read() const {
    char byte;
    STILLPOINT_CHECK(read(ends_[0], &byte, 1) == 1, "the pipe is broken");
  }

 private:
  int ends_[2];
};

class HandoffTest : public testing::RuntimeTest {
 protected:
  Options With(size_t carriers, size_t extra) {
    Options options = testing::TestOptions(GetParam());
    options.carriers = carriers;
    options.extra_carriers = extra;
    options.native_handoff = std::chrono::microseconds(200);
    options.event_sink = &sink_;
    options.name = "handoff";
    return options;
  }
  bool IsReported(std::string_view one, std::string_view other) const {
    for (const std::string& message : sink_.messages()) {
      if (message.find(one) != std::string::npos &&
          message.find(other) != std::string::npos) {
        return true;
      }
    }
    return false;
  }

  testing::RecordingSink sink_;
};
STILLPOINT_IN_ALL_CONFIGURATIONS(HandoffTest);

// OS threads of this process that are carriers.
int CarrierCount() {
  int count = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string name =
        testing::OsThreadName(std::stoi(task.path().filename().string()));
    if (name.rfind("handoff-carrier", 0) == 0) ++count;
  }
  return count;
}

// Each new thread gets a carrier, though each of them blocks until the last one
// has run.
TEST_P(HandoffTest, ThreadsThatHaveNotBegunGetAnotherCarrier) {
  constexpr int kThreads = 4;
  Make(With(1, kThreads - 1));
  const Pipe pipe;
  std::atomic<int> begun{0};
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "reader", [&] {
      if (begun.fetch_add(1) == kThreads - 1) {
        for (int j = 1; j < kThreads; ++j) pipe.Write();
      } else {
        pipe.Read();
      }
    }));
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(begun.load(), kThreads);
}

TEST_P(HandoffTest, ThoseThatItHasStartedItselfGetOne) {
  Make(With(1, 1));
  const Pipe pipe;
  const ThreadHandle parent = StartGreenOrFail(runtime(), "parent", [&] {
    const ThreadHandle child =
        StartGreenOrFail(runtime(), "child", [&] { pipe.Write(); });
    pipe.Read();
    EXPECT_TRUE(child.Join().ok());
  });
  EXPECT_TRUE(parent.Join().ok());
}

// No more carriers than allowed, and a sentence about those who wait.
TEST_P(HandoffTest, ExtraCarriersAreBoundedAndTheLackIsReported) {
  Make(With(1, 1));
  const Pipe pipe;
  std::atomic<int> begun{0};
  std::vector<ThreadHandle> threads;
  for (int i = 0; i < 3; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "reader", [&] {
      begun.fetch_add(1);
      pipe.Read();
    }));
  }
  Await([&] { return begun.load() == 2; });
  Await([&] { return IsReported("every carrier is held up", "reader"); });
  EXPECT_EQ(begun.load(), 2);
  for (int i = 0; i < 3; ++i) pipe.Write();
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_THAT(sink_.messages(), Contains(HasSubstr("extra_carriers")));
}

// Two of the same carrier: the one that is ready waits behind the other.
TEST_P(HandoffTest, StartedOnesThatWaitAreReportedWithTheirNames) {
  Make(With(1, 4));
  const Pipe pipe;
  const ThreadHandle behind = StartGreenOrFail(runtime(), "behind", [&] {
    EXPECT_TRUE(Park().ok());
    pipe.Write();
  });
  AwaitState(runtime(), "behind", ThreadState::kBlocked);
  std::atomic<bool> reads{false};
  const ThreadHandle blocker = StartGreenOrFail(runtime(), "blocker", [&] {
    EXPECT_TRUE(behind.Unpark());
    reads.store(true);
    pipe.Read();
  });
  Await([&] { return IsReported("blocker", "behind"); });
  EXPECT_TRUE(reads.load());
  pipe.Write();
  EXPECT_TRUE(blocker.Join().ok());
  EXPECT_TRUE(behind.Join().ok());
}

// Where threads migrate, so do those that are ready behind one that blocks,
// whoever has woken them and whenever.
TEST_P(HandoffTest, WithMigrationStartedOnesGetAnotherCarrier) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "migration is for x86-64";
#endif
  if (kAsan || kTsan) {
    GTEST_SKIP() << "instrumented code keeps thread-local addresses";
  }
  for (const bool from_outside : {false, true}) {
    Options options = With(1, 1);
    options.migrate_green_threads = true;
    Make(options);
    for (int round = 0; round < 3; ++round) {
      const Pipe pipe;
      std::atomic<bool> reads{false};
      const ThreadHandle behind = StartGreenOrFail(runtime(), "behind", [&] {
        EXPECT_TRUE(Park().ok());
        pipe.Write();
      });
      AwaitState(runtime(), "behind", ThreadState::kBlocked);
      const ThreadHandle blocker = StartGreenOrFail(runtime(), "blocker", [&] {
        if (!from_outside) {
          EXPECT_TRUE(behind.Unpark());
        }
        reads.store(true);
        pipe.Read();
      });
      Await([&] { return reads.load(); });
      if (from_outside) {
        EXPECT_TRUE(behind.Unpark());
      }
      EXPECT_TRUE(blocker.Join().ok());
      EXPECT_TRUE(behind.Join().ok());
    }
  }
}

// One that blocks is worth one carrier more, however much there is to do for
// those that do not.
TEST_P(HandoffTest, OneBlockedThreadIsWorthOneCarrier) {
  constexpr size_t kExtra = 8;
  Options options = With(1, kExtra);
  // Who is preempted in a safe state for so long counts as held up, too.
  options.native_handoff = std::chrono::milliseconds(2);
  Make(options);
  const Pipe pipe;
  std::atomic<bool> reads{false};
  const ThreadHandle blocker = StartGreenOrFail(runtime(), "blocker", [&] {
    reads.store(true);
    pipe.Read();
  });
  Await([&] { return reads.load(); });
  // Each of them waits for its turn on the one carrier, for longer than a
  // hand-off takes.
  std::vector<ThreadHandle> threads;
  std::atomic<int> ran{0};
  constexpr int kThreads = 30;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(StartGreenOrFail(runtime(), "worker", [&] {
      ManagedScope managed;
      const int64_t until = MonotonicNanos() + 3'000'000;
      while (MonotonicNanos() < until) Poll();
      ran.fetch_add(1);
    }));
  }
  for (const ThreadHandle& thread : threads) EXPECT_TRUE(thread.Join().ok());
  EXPECT_EQ(ran.load(), kThreads);
  EXPECT_GE(CarrierCount(), 2);
  EXPECT_LT(CarrierCount(), static_cast<int>(kExtra));
  pipe.Write();
  EXPECT_TRUE(blocker.Join().ok());
}

}  // namespace
}  // namespace stillpoint
