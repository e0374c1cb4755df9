// Incident E1: the process ends while everything runs. Whoever ends it and in
// whatever way, its status is the right one, and it neither hangs nor crashes.
// Incident E3: threads that come back after the runtime has ended.

#include <signal.h>

#include <string>

#include "gtest/gtest.h"
#include "tests/lifecycle/child_process.h"

namespace stillpoint::testing {
namespace {

constexpr int kRounds = 12;
constexpr char kDriver[] = "tests/lifecycle/exit_driver";

struct Case {
  const char* way;
  const char* from;
  int signal;  // that kills it; 0: it exits with the status it was given
};

class ProcessExitTest : public ::testing::TestWithParam<Case> {};

TEST_P(ProcessExitTest, EndsWithTheRightStatus) {
  const Case& test = GetParam();
  for (int round = 0; round < kRounds; ++round) {
    const int status = 40 + round;
    const Ending ending =
        RunProgram(kDriver, {test.way, test.from, std::to_string(status)});
    EXPECT_EQ(ending.signal, test.signal);
    if (test.signal == 0) {
      EXPECT_EQ(ending.exit_status, status);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ProcessExitTest,
    ::testing::Values(
        Case{"exit", "main", 0}, Case{"exit", "native", 0},
        Case{"exit", "managed", 0}, Case{"quick_exit", "main", 0},
        Case{"quick_exit", "native", 0}, Case{"quick_exit", "managed", 0},
        Case{"_exit", "main", 0}, Case{"_exit", "managed", 0},
        Case{"return", "main", 0}, Case{"pthread_exit", "main", 0},
        Case{"abort", "main", SIGABRT}, Case{"abort", "native", SIGABRT},
        Case{"abort", "managed", SIGABRT}, Case{"throw", "main", SIGABRT},
        Case{"throw", "native", SIGABRT}, Case{"throw", "managed", SIGABRT},
        Case{"late", "polls", 0}, Case{"late", "returns", 0},
        Case{"late", "joins", 0}),
    [](const ::testing::TestParamInfo<Case>& info) {
      return std::string(info.param.way) + "_from_" + info.param.from;
    });

}  // namespace
}  // namespace stillpoint::testing
