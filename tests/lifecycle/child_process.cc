#include "tests/lifecycle/child_process.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace stillpoint::testing {
namespace {

void AppendToVariable(const char* variable, const std::string& text) {
  const char* present = getenv(variable);
  const std::string before = present == nullptr ? "" : present;
  if (before.find(text) != std::string::npos) return;
  setenv(variable, (before + text).c_str(), 1);
}

}  // namespace

Ending RunProgram(const std::string& path,
                  const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  argv.push_back(const_cast<char*>(path.c_str()));
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  // Programs here end with everything allocated and running, on purpose; and
  // TSan's second of rest before the end helps nobody.
  AppendToVariable("ASAN_OPTIONS", ":detect_leaks=0");
  AppendToVariable("TSAN_OPTIONS", ":atexit_sleep_ms=0");
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    execv(path.c_str(), argv.data());
    _exit(127);
  }
  return AwaitChild(child);
}

Ending AwaitChild(pid_t child) {
  Ending ending;
  if (child < 0) return ending;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return ending;
  }
  if (WIFEXITED(status)) ending.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ending.signal = WTERMSIG(status);
  return ending;
}

}  // namespace stillpoint::testing
