#include "tests/lifecycle/child_process.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace stillpoint::testing {

Ending RunProgram(const std::string& path,
                  const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  argv.push_back(const_cast<char*>(path.c_str()));
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  // Programs here end with everything allocated and running, on purpose.
  setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
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
