#include "tests/os/thread_watch.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace stillpoint::testing {
namespace {

std::atomic<int> user_signals{0};

std::string TaskFile(pid_t tid, const char* name) {
  std::ifstream file("/proc/self/task/" + std::to_string(tid) + "/" + name);
  // The thread may end at any moment, then reading fails; getline takes that
  // for the end. The files hold no zero bytes.
  std::string text;
  std::getline(file, text, '\0');
  return text;
}

}  // namespace

char SchedulerState(pid_t tid) {
  const std::string stat = TaskFile(tid, "stat");
  // "tid (name) S ...", and the name may hold anything.
  const size_t end_of_name = stat.rfind(')');
  return end_of_name == std::string::npos ? '\0' : stat[end_of_name + 2];
}

void AwaitSleeping(pid_t tid) {
  while (SchedulerState(tid) != 'S') sched_yield();
}

void AwaitGone(pid_t tid) {
  while (SchedulerState(tid) != '\0') sched_yield();
}

std::string OsThreadName(pid_t tid) {
  std::string name = TaskFile(tid, "comm");
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

int OsThreadCount() {
  using std::filesystem::directory_iterator;
  return static_cast<int>(std::distance(directory_iterator("/proc/self/task"),
                                        directory_iterator()));
}

void CountUserSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { user_signals.fetch_add(1); };
  action.sa_flags = 0;  // no SA_RESTART
  sigaction(SIGUSR1, &action, nullptr);
}

int UserSignals() { return user_signals.load(); }

void BombardSleeper(pid_t tid, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    AwaitSleeping(tid);
    syscall(SYS_tgkill, getpid(), tid, SIGUSR1);
  }
  AwaitSleeping(tid);
}

}  // namespace stillpoint::testing
