// The watchdog: that it says who is late, why, once, and what to do; on a clock
// that the test sets, with what the kernel says made up or real.

#include "runtime/safepoint/watchdog.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/sanitizer.h"
#include "runtime/os/thread_probe.h"
#include "runtime/stillpoint.h"
#include "runtime/thread/threads_lock.h"
#include "tests/support/await.h"
#include "tests/support/recording_sink.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::Await;
using testing::AwaitState;
using ::testing::HasSubstr;
using testing::MakeRuntime;
using ::testing::Not;
using testing::RecordingSink;
using testing::StartOrFail;

constexpr int64_t kSecond = 1'000'000'000;

class TestHooks : public WatchdogHooks {
 public:
  int64_t Now() override { return now_.load(); }
  ThreadProbe Probe(pid_t tid) override {
    const int look = looks_.fetch_add(1);
    if (on_look) on_look(look);
    return probe ? probe(look) : ProbeThread(tid);
  }
  void Advance(int64_t nanos) { now_.fetch_add(nanos); }
  int looks() const { return looks_.load(); }

  // Set before the runtime is made. By the waiting thread.
  std::function<void(int)> on_look;
  std::function<ThreadProbe(int)> probe;

 private:
  std::atomic<int64_t> now_{kSecond};
  std::atomic<int> looks_{0};
};

ThreadProbe Probe(int64_t cpu, char state) {
  ThreadProbe probe;
  probe.cpu_nanos = cpu;
  probe.state = state;
  return probe;
}

class WatchdogTest : public ::testing::Test {
 protected:
  void Make(std::function<void(Options&)> change = nullptr) {
    Options options = testing::TestOptions();
    options.event_sink = &sink_;
    options.watchdog_hooks = &hooks_;
    if (change) change(options);
    runtime_ = MakeRuntime(options);
    ASSERT_NE(runtime_, nullptr);
  }
  void TearDown() override {
    release_.store(true);
    if (runtime_ == nullptr) return;
    EXPECT_TRUE(runtime_->Shutdown(Deadline::Infinite()).ok());
  }

  // In Managed without a poll, until release_.
  ThreadHandle StartDeaf(std::string name) {
    ThreadHandle handle = StartOrFail(*runtime_, name, [this] {
      ManagedScope managed;
      while (!release_.load(std::memory_order_relaxed)) {
      }
    });
    AwaitState(*runtime_, name, ThreadState::kManaged);
    return handle;
  }
  std::thread StopInBackground(std::string name = "gc") {
    return std::thread([this, name] {
      EXPECT_TRUE(runtime_->AtSafepoint(name, [](World&) {}).ok());
    });
  }
  std::vector<std::string> Warnings() const {
    std::vector<std::string> warnings;
    for (const std::string& message : sink_.messages()) {
      if (message.substr(0, 2) == "W ") warnings.push_back(message.substr(2));
    }
    return warnings;
  }
  std::string AwaitWarning(size_t count = 1) const {
    Await([&] { return Warnings().size() >= count; });
    return Warnings()[count - 1];
  }

  RecordingSink sink_;
  TestHooks hooks_;
  std::atomic<bool> release_{false};
  std::unique_ptr<Runtime> runtime_;
};

TEST(JudgeLateThreadTest, EachVerdict) {
  const ThreadProbe before = Probe(100, 'R');
  const auto judge = [&](const ThreadProbe& now) {
    return JudgeLateThread(before, now, kSecond);
  };
  EXPECT_EQ(judge(Probe(kSecond, 'R')), LateVerdict::kRunsWithoutPolling);
  EXPECT_EQ(judge(Probe(kSecond * 6 / 10, 'R')),
            LateVerdict::kRunsWithoutPolling);
  EXPECT_EQ(judge(Probe(kSecond * 4 / 10, 'R')), LateVerdict::kNotScheduled);
  EXPECT_EQ(judge(Probe(100, 'R')), LateVerdict::kNotScheduled);
  EXPECT_EQ(judge(Probe(200, 'S')), LateVerdict::kInKernel);
  EXPECT_EQ(judge(Probe(kSecond, 'D')), LateVerdict::kInKernel);
  ThreadProbe unknown;
  unknown.state = 'R';
  EXPECT_EQ(judge(unknown), LateVerdict::kUnknown);
}

// Incidents A4, J1.
TEST_F(WatchdogTest, SaysWhoIsLateOnceInEachStop) {
  hooks_.probe = [](int look) {
    return look == 0 ? Probe(0, 'R') : Probe(1'500'000'000, 'R');
  };
  Make();
  const ThreadHandle deaf = StartDeaf("deaf");
  std::thread stopper = StopInBackground();
  Await([&] { return hooks_.looks() > 0; });
  EXPECT_THAT(Warnings(), ::testing::IsEmpty());
  hooks_.Advance(2 * kSecond);
  const std::string report = AwaitWarning();
  EXPECT_THAT(report, HasSubstr("Safepoint \"gc\" is late: it has waited 2s "
                                "for 1 thread."));
  EXPECT_THAT(report,
              HasSubstr("\"deaf\" (tid " + std::to_string(deaf.slot()->tid()) +
                        ", native, Managed for at least 2s): runs without "
                        "polling: used 1.5s of CPU time in 2s."));
  EXPECT_THAT(report, HasSubstr("Poll on every loop's back edge"));
  EXPECT_THAT(report, Not(HasSubstr("Last change of state")));
  EXPECT_THAT(report, Not(HasSubstr("#0")));
  hooks_.Advance(10 * kSecond);
  // Time for more looks, were there any.
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  EXPECT_EQ(Warnings().size(), 1u);
  release_.store(true);
  stopper.join();
  EXPECT_TRUE(deaf.Join().ok());
  const std::vector<WorstStop> worst = runtime_->WorstStops();
  ASSERT_FALSE(worst.empty());
  EXPECT_STREQ(worst[0].record.operation, "gc");
  EXPECT_THAT(worst[0].reason,
              HasSubstr("thread \"deaf\" runs without polling"));

  release_.store(false);
  const ThreadHandle again = StartDeaf("again");
  std::thread next = StopInBackground("next");
  const int looks = hooks_.looks();
  Await([&] { return hooks_.looks() > looks; });
  hooks_.Advance(2 * kSecond);
  EXPECT_THAT(AwaitWarning(2), HasSubstr("\"again\""));
  release_.store(true);
  next.join();
  EXPECT_TRUE(again.Join().ok());
}

// Incident A10.
TEST_F(WatchdogTest, TellsNotScheduledFromNotPolling) {
  hooks_.probe = [](int look) {
    return look == 0 ? Probe(0, 'R') : Probe(kSecond / 20, 'R');
  };
  Make();
  const ThreadHandle deaf = StartDeaf("starved");
  std::thread stopper = StopInBackground();
  Await([&] { return hooks_.looks() > 0; });
  hooks_.Advance(kSecond);
  const std::string report = AwaitWarning();
  EXPECT_THAT(report, HasSubstr("not scheduled: it wanted the processor and "
                                "got 5 %: used 50ms of CPU time in 1s"));
  EXPECT_THAT(report, HasSubstr("cpu.max"));
  release_.store(true);
  stopper.join();
  EXPECT_TRUE(deaf.Join().ok());
}

// Incident D1. What the kernel says, really.
TEST_F(WatchdogTest, ASystemCallInManaged) {
  Make();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const ThreadHandle reader = StartOrFail(*runtime_, "reader", [&] {
    ManagedScope managed;
    char byte;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
  });
  AwaitState(*runtime_, "reader", ThreadState::kManaged);
  Await([&] { return ProbeThread(reader.slot()->tid()).state == 'S'; });
  std::thread stopper = StopInBackground();
  Await([&] { return hooks_.looks() > 0; });
  hooks_.Advance(kSecond);
  const std::string report = AwaitWarning();
  EXPECT_THAT(report, HasSubstr("in a page fault or a system call while "
                                "Managed"));
  EXPECT_THAT(report, HasSubstr("kernel state S"));
  EXPECT_THAT(report, HasSubstr("BlockedScope"));
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  stopper.join();
  EXPECT_TRUE(reader.Join().ok());
  close(ends[0]);
  close(ends[1]);
}

// One that gets no processor, really: it shares one with a thread that has
// precedence.
TEST_F(WatchdogTest, TheKernelTellsWhoGetsNoProcessor) {
  cpu_set_t one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(one), &one), 0);
  int processor = 0;
  while (!CPU_ISSET(processor, &one)) ++processor;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  std::atomic<pid_t> tid{0};
  std::atomic<bool> end{false};
  const auto spin = [&] {
    while (!end.load(std::memory_order_relaxed)) {
    }
  };
  std::thread starved([&] {
    sched_setaffinity(0, sizeof(one), &one);
    const sched_param lowest = {};
    sched_setscheduler(0, SCHED_IDLE, &lowest);
    tid.store(gettid());
    spin();
  });
  Await([&] { return tid.load() != 0; });
  std::thread hog([&] {
    sched_setaffinity(0, sizeof(one), &one);
    spin();
  });
  // Until it has wanted the processor for a while.
  const ThreadProbe before = ProbeThread(tid.load());
  const int64_t began = MonotonicNanos();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const ThreadProbe after = ProbeThread(tid.load());
  EXPECT_EQ(JudgeLateThread(before, after, MonotonicNanos() - began),
            LateVerdict::kNotScheduled);
  end.store(true);
  starved.join();
  hog.join();
}

TEST_F(WatchdogTest, WithABacktrace) {
#ifdef STILLPOINT_TSAN
  GTEST_SKIP() << "TSan delivers signals at system calls only";
#endif
  Make([](Options& options) { options.backtrace_signal = SIGRTMIN + 3; });
  const ThreadHandle deaf = StartDeaf("deaf");
  std::thread stopper = StopInBackground();
  Await([&] { return hooks_.looks() > 0; });
  hooks_.Advance(kSecond);
  EXPECT_THAT(AwaitWarning(), HasSubstr("\n    #0 "));
  release_.store(true);
  stopper.join();
  EXPECT_TRUE(deaf.Join().ok());
}

TEST_F(WatchdogTest, WhoArrivesWhileItIsPrinted) {
  std::atomic<Thread*> late{nullptr};
  hooks_.on_look = [&](int look) {
    if (look == 0) return;
    release_.store(true);
    while (!IsSafe(late.load()->state())) {
    }
  };
  Make();
  const ThreadHandle deaf = StartDeaf("deaf");
  late.store(deaf.slot());
  std::thread stopper = StopInBackground();
  Await([&] { return hooks_.looks() > 0; });
  hooks_.Advance(kSecond);
  stopper.join();
  EXPECT_THAT(AwaitWarning(), HasSubstr("has become safe meanwhile"));
  EXPECT_TRUE(deaf.Join().ok());
}

TEST_F(WatchdogTest, AHandshake) {
  Make();
  const ThreadHandle deaf = StartDeaf("deaf");
  std::thread requester([&] {
    EXPECT_TRUE(runtime_->Handshake(deaf, "look", [](Thread&) {}).ok());
  });
  Await([&] { return hooks_.looks() > 0; });
  hooks_.Advance(kSecond);
  EXPECT_THAT(AwaitWarning(), HasSubstr("Handshake \"look\" is late"));
  EXPECT_THAT(AwaitWarning(), HasSubstr("\"deaf\""));
  release_.store(true);
  requester.join();
  EXPECT_TRUE(deaf.Join().ok());
}

// Incident J6: which phase. The protocols in which Threads_lock is one.
TEST_F(WatchdogTest, AWaitForThreadsLock) {
  Make([](Options& options) {
    options.start_protocol = StartProtocol::kUnderThreadsLock;
  });
  std::atomic<bool> held{false};
  const ThreadHandle holder = StartOrFail(*runtime_, "holder", [&] {
    MembershipChange change(CurrentThreadHandle().registry()->threads_lock(),
                            MembershipChange::kJoin);
    held.store(true);
    Await([&] { return release_.load(); });
  });
  Await([&] { return held.load(); });
  std::thread stopper = StopInBackground();
  std::string report;
  Await([&] {
    hooks_.Advance(kSecond);
    return !Warnings().empty();
  });
  report = AwaitWarning();
  EXPECT_THAT(report, HasSubstr("Safepoint \"gc\" is late"));
  EXPECT_THAT(report, HasSubstr("for Threads_lock"));
  EXPECT_THAT(report,
              HasSubstr("is held by thread \"holder\" (tid " +
                        std::to_string(holder.slot()->tid()) + ") since"));
  release_.store(true);
  stopper.join();
  EXPECT_TRUE(holder.Join().ok());
  EXPECT_THAT(runtime_->WorstStops()[0].reason, HasSubstr("Threads_lock"));
}

TEST_F(WatchdogTest, Off) {
  Make([](Options& options) {
    options.safepoint_timeout = std::chrono::nanoseconds(0);
  });
  const ThreadHandle deaf = StartDeaf("deaf");
  std::thread stopper = StopInBackground();
  hooks_.Advance(100 * kSecond);
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  release_.store(true);
  stopper.join();
  EXPECT_TRUE(deaf.Join().ok());
  EXPECT_EQ(hooks_.looks(), 0);
  EXPECT_THAT(Warnings(), ::testing::IsEmpty());
}

TEST_F(WatchdogTest, TheWorstTenAreKept) {
  Make();
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(
        runtime_->AtSafepoint("stop " + std::to_string(i), [](World&) {}).ok());
  }
  const std::vector<WorstStop> worst = runtime_->WorstStops();
  ASSERT_EQ(worst.size(), StopHistory::kKept);
  for (size_t i = 0; i < worst.size(); ++i) {
    EXPECT_FALSE(worst[i].reason.empty());
    if (i > 0) {
      EXPECT_LE(worst[i].record.time_to_safepoint(),
                worst[i - 1].record.time_to_safepoint());
    }
  }
  // None that was left out is worse.
  const std::vector<SafepointRecord> all = sink_.AwaitRecords(30);
  for (const SafepointRecord& record : all) {
    bool kept = false;
    for (const WorstStop& stop : worst) {
      kept = kept || stop.record.sequence == record.sequence;
    }
    if (!kept) {
      EXPECT_LE(record.time_to_safepoint(),
                worst.back().record.time_to_safepoint());
    }
  }
}

// Incident J2: only if asked for, and with a grace period.
TEST_F(WatchdogTest, EndsTheProcessIfAskedTo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Make([](Options& options) {
          options.safepoint_abort = std::chrono::seconds(5);
        });
        StartDeaf("deaf");
        std::thread stopper = StopInBackground();
        Await([&] { return hooks_.looks() > 0; });
        hooks_.Advance(5 * kSecond);
        AwaitWarning();
        // A warning, and the grace period.
        std::this_thread::sleep_for(std::chrono::milliseconds(120));
        hooks_.Advance(kSecond);
        stopper.join();
        _exit(0);
      },
      "Safepoint \"gc\" is overdue by 5s and the option safepoint_abort");
}

}  // namespace
}  // namespace stillpoint
