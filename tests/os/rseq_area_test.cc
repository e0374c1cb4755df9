#include "runtime/os/rseq_area.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/os/rseq_self_test.h"
#include "tests/os/seccomp_filter.h"
#include "tests/os/thread_watch.h"

namespace stillpoint {
namespace {

class RseqAreaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CurrentThreadRseqField() == nullptr) {
      GTEST_SKIP() << "libc has registered no rseq area";
    }
    marks_ = SharedRseqMarks();
    ASSERT_NE(marks_.descriptor, 0u);
    ASSERT_NE(marks_.fork_word, nullptr);
  }

  RseqMarks marks_;
};

TEST_F(RseqAreaTest, EachThreadHasItsOwnField) {
  std::atomic<uint64_t>* const own = CurrentThreadRseqField();
  EXPECT_EQ(CurrentThreadRseqField(), own);
  std::thread([own] {
    EXPECT_NE(CurrentThreadRseqField(), nullptr);
    EXPECT_NE(CurrentThreadRseqField(), own);
  }).join();
}

TEST_F(RseqAreaTest, TheMarksAreTheSameEverAfter) {
  const RseqMarks again = SharedRseqMarks();
  EXPECT_EQ(again.descriptor, marks_.descriptor);
  EXPECT_EQ(again.fork_word, marks_.fork_word);
}

using RseqAreaDeathTest = RseqAreaTest;

TEST_F(RseqAreaDeathTest, TheDescriptorCannotBeWritten) {
  EXPECT_EXIT(
      *reinterpret_cast<volatile char*>(marks_.descriptor) = 1,
      [](int status) {
        // Sanitizers catch the signal, and exit.
        return WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
      },
      "");
}

// The kernel reads the descriptor when it delivers the signal: a wrong one
// would end the process.
TEST_F(RseqAreaTest, ASignalEmptiesTheField) {
  testing::CountUserSignals();
  std::atomic<uint64_t>& field = *CurrentThreadRseqField();
  const int before = testing::UserSignals();
  field.store(marks_.descriptor);
  raise(SIGUSR1);
  EXPECT_EQ(testing::UserSignals(), before + 1);
  const bool emptied = field.load() != marks_.descriptor;
  // It came at the end of a system call, which not every kernel reports.
  if (!emptied && TestRseq() == RseqFinding::kClearedInUser) {
    GTEST_SKIP() << "this kernel reports what comes in user mode only";
  }
  EXPECT_TRUE(emptied);
}

TEST_F(RseqAreaTest, AThreadMayEndWithADescriptor) {
  for (int i = 0; i < 100; ++i) {
    std::thread([this] {
      CurrentThreadRseqField()->store(marks_.descriptor);
    }).join();
  }
}

TEST_F(RseqAreaTest, EachForkIsAnEpochOfItsOwn) {
  const uint32_t parent = CurrentEpoch(*marks_.fork_word);
  EXPECT_NE(parent, 0u);
  EXPECT_EQ(CurrentEpoch(*marks_.fork_word), parent);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Not looked at between the two forks: the grandchild may not take its
    // grandparent's number.
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      const uint32_t epoch = CurrentEpoch(*marks_.fork_word);
      const bool stays = epoch == CurrentEpoch(*marks_.fork_word);
      _exit(epoch != 0 && epoch != parent && stays ? 0 : 1);
    }
    int status = -1;
    waitpid(grandchild, &status, 0);
    const uint32_t epoch = CurrentEpoch(*marks_.fork_word);
    _exit(status == 0 && epoch != 0 && epoch != parent ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(CurrentEpoch(*marks_.fork_word), parent);
}

TEST_F(RseqAreaTest, TheSelfTestFindsThatPreemptionIsReported) {
  RseqFinding finding;
  do {
    finding = TestRseq();  // a loaded machine may need several attempts
  } while (finding == RseqFinding::kNotPreempted);
  EXPECT_TRUE(finding == RseqFinding::kClearedInUser ||
              finding == RseqFinding::kClearedAnywhere)
      << static_cast<uint32_t>(finding);
}

// A real-time thread is preempted by none of its own priority.
TEST_F(RseqAreaTest, TheSelfTestWorksOnARealTimeThread) {
  bool became_one = false;
  bool known = false;
  std::thread([&] {
    sched_param param = {};
    param.sched_priority = 1;
    became_one = sched_setscheduler(0, SCHED_FIFO, &param) == 0;
    // A loaded machine may need several attempts.
    for (int i = 0; i < 100 && became_one && !known; ++i) {
      known = TestRseq() != RseqFinding::kNotPreempted;
    }
  }).join();
  if (!became_one) GTEST_SKIP() << "real-time scheduling is not permitted here";
  EXPECT_TRUE(known);
}

TEST_F(RseqAreaTest, TheSelfTestKnowsNothingWithoutThreads) {
  RseqFinding finding = RseqFinding::kUntried;
  if (!testing::RunWithoutThreadCreation([&] { finding = TestRseq(); })) {
    GTEST_SKIP() << "this kernel has no seccomp filters";
  }
  EXPECT_EQ(finding, RseqFinding::kNotPreempted);
}

TEST_F(RseqAreaTest, TheSelfTestKnowsNothingWithoutAffinity) {
  RseqFinding finding = RseqFinding::kUntried;
  if (!testing::RunDenied({{SYS_sched_setaffinity, EPERM}},
                          [&] { finding = TestRseq(); })) {
    GTEST_SKIP() << "this kernel has no seccomp filters";
  }
  EXPECT_EQ(finding, RseqFinding::kNotPreempted);
}

}  // namespace
}  // namespace stillpoint
