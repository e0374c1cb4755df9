// fork() with everything running, in the way that needs no help from the
// runtime: the child calls nothing of ours, and execs or leaves.

#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/lifecycle/child_process.h"
#include "tests/support/busy_mutators.h"
#include "tests/support/runtime_test.h"

namespace stillpoint {
namespace {

using testing::AwaitChild;
using testing::BusyMutators;
using testing::Ending;
using testing::StartOrFail;
using testing::StopAndCheck;

class ForkTest : public testing::RuntimeTest {
 protected:
  // Forks from this thread again and again while threads start, exit and stop.
  void ForkAgainstEverything(void (*in_child)(), int expected_status) {
    std::atomic<bool> done{false};
    BusyMutators busy(runtime(), canary(), 2);
    std::thread stopper([&] {
      while (!done.load()) StopAndCheck(runtime(), canary());
    });
    std::thread starter([&] {
      while (!done.load()) {
        const ThreadHandle child = StartOrFail(runtime(), "child", [] {});
        EXPECT_TRUE(child.Join().ok());
      }
    });
    for (int i = 0; i < 5; ++i) {
      const pid_t child = fork();
      if (child == 0) in_child();
      const Ending ending = AwaitChild(child);
      EXPECT_EQ(ending.exit_status, expected_status);
      EXPECT_EQ(ending.signal, 0);
      // The parent is none the worse for it.
      StopAndCheck(runtime(), canary());
      busy.AwaitProgress();
    }
    done.store(true);
    stopper.join();
    starter.join();
  }
};
STILLPOINT_IN_ALL_CONFIGURATIONS(ForkTest);

TEST_P(ForkTest, ChildLeavesAtOnce) {
  ForkAgainstEverything([] { _exit(3); }, 3);
}

TEST_P(ForkTest, ChildExecs) {
  ForkAgainstEverything(
      [] {
        char program[] = "/bin/sh";
        char option[] = "-c";
        char command[] = "exit 4";
        char* argv[] = {program, option, command, nullptr};
        execv(program, argv);
        _exit(127);
      },
      4);
}

}  // namespace
}  // namespace stillpoint
