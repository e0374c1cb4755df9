// The example programs, run as a user runs them.

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stillpoint {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Outcome {
  int exit_code = -1;
  std::string output;  // standard output and standard error
};

class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    int pipe_ends[2];
    EXPECT_EQ(pipe(pipe_ends), 0);
    child_ = fork();
    if (child_ == 0) {
      dup2(pipe_ends[1], STDOUT_FILENO);
      dup2(pipe_ends[1], STDERR_FILENO);
      close(pipe_ends[0]);
      close(pipe_ends[1]);
      arguments[0] = "examples/" + arguments[0];
      std::vector<char*> raw;
      for (std::string& argument : arguments) raw.push_back(argument.data());
      raw.push_back(nullptr);
      execv(raw[0], raw.data());
      _exit(127);
    }
    close(pipe_ends[1]);
    output_ = fdopen(pipe_ends[0], "r");
  }

  void Signal(int number) { kill(child_, number); }

  // Reads until a line that contains `text`.
  void ReadUntil(const std::string& text) {
    char line[1024];
    while (fgets(line, sizeof(line), output_) != nullptr) {
      outcome_.output += line;
      if (std::string(line).find(text) != std::string::npos) return;
    }
  }

  Outcome Finish() {
    ReadUntil("\x01");  // to the end
    fclose(output_);
    int status = 0;
    waitpid(child_, &status, 0);
    if (WIFEXITED(status)) outcome_.exit_code = WEXITSTATUS(status);
    return outcome_;
  }

 private:
  pid_t child_ = -1;
  FILE* output_ = nullptr;
  Outcome outcome_;
};

Outcome RunProgram(std::vector<std::string> arguments) {
  return Program(std::move(arguments)).Finish();
}

TEST(ProgramsTest, EmbeddingRuns) {
  const Outcome outcome = RunProgram({"embedding"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("interpreter: scan "));
  EXPECT_THAT(outcome.output, HasSubstr("interrupted\n"));
}

TEST(ProgramsTest, MinimalHostRuns) {
  const Outcome outcome = RunProgram({"minimal_host"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("interpreter-0 is "));
  EXPECT_THAT(outcome.output, HasSubstr("interpreter-1: returned 1000005"));
}

TEST(ProgramsTest, StormGoesThroughThreeProtocolsWithoutAViolation) {
  const Outcome outcome =
      RunProgram({"thread_storm", "--seconds=0.2", "--starters=4",
                  "--interval_ms=1", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, StartsWith("{\"protocols\":[{\"name\":"));
  for (const char* name : {"under_lock", "start_lock", "outside"}) {
    EXPECT_THAT(outcome.output,
                HasSubstr("\"name\":\"" + std::string(name) + "\""));
  }
  EXPECT_THAT(outcome.output, Not(HasSubstr("\"starts_per_second\":0.0")));
  EXPECT_THAT(outcome.output, Not(HasSubstr("\"safepoints\":0")));
}

TEST(ProgramsTest, StormLogsOneLineAStop) {
  const Outcome outcome =
      RunProgram({"thread_storm", "--seconds=0.1", "--starters=2",
                  "--protocol=outside", "--log=safepoint"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("Safepoint \"storm\", Time since last: 0 ns, Waiting "
                        "for Threads_lock: "));
  EXPECT_THAT(outcome.output, HasSubstr(" ns, Reaching safepoint: "));
}

TEST(ProgramsTest, StormEndsCleanlyOnCtrlC) {
  Program storm({"thread_storm", "--seconds=3600", "--starters=2",
                 "--log=safepoint", "--protocol=outside"});
  storm.ReadUntil("Safepoint \"storm\"");
  storm.Signal(SIGINT);
  const Outcome outcome = storm.Finish();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("Interrupted: these are the results"));
  EXPECT_THAT(outcome.output, HasSubstr("lock wait"));
}

TEST(ProgramsTest, StormRefusesBadFlagsWithWhatIsAllowed) {
  for (const std::string flag :
       {"--starters=0", "--alive=-1", "--interval_ms=0", "--seconds=nan",
        "--protocol=sideways", "--log=everything", "--busy=100000"}) {
    const Outcome outcome = RunProgram({"thread_storm", flag});
    EXPECT_EQ(outcome.exit_code, 2) << flag;
    EXPECT_THAT(outcome.output, HasSubstr("allowed are")) << flag;
  }
  EXPECT_EQ(RunProgram({"thread_storm", "stray"}).exit_code, 2);
}

TEST(ProgramsTest, SkynetSumsItsLeaves) {
  const Outcome outcome = Program({"skynet", "--leaves=1000"}).Finish();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, StartsWith("1111 threads, sum 499500, "));
  EXPECT_THAT(outcome.output, Not(HasSubstr("\r")));  // no progress in a pipe
  const Outcome wrong = Program({"skynet", "--leaves=17"}).Finish();
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.output, HasSubstr("power of ten"));
}

}  // namespace
}  // namespace stillpoint
