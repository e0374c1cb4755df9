#include "runtime/os/thread_probe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/os/cpu_clock.h"

namespace stillpoint {
namespace {

// The begin of a file of the thread; empty if there is none.
struct ProcText {
  char text[512];

  ProcText(pid_t tid, const char* file) {
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/self/task/%d/%s", tid, file);
    text[0] = '\0';
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    const ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? static_cast<size_t>(n) : 0] = '\0';
  }
};

}  // namespace

ThreadProbe ProbeThread(pid_t tid) {
  ThreadProbe probe;
  if (tid == 0) return probe;
  probe.cpu_nanos =
      ReadCpuClock(CpuClockId(CpuClockOf::kThread, tid, CpuClock::kTotal));
  const ProcText stat(tid, "stat");
  // The name, in parentheses, may have any character.
  const char* name_end = std::strrchr(stat.text, ')');
  if (name_end != nullptr && name_end[1] == ' ') probe.state = name_end[2];
  const ProcText syscall(tid, "syscall");
  // "running", or a number and more.
  char* end = nullptr;
  const long number = std::strtol(syscall.text, &end, 10);
  if (end != syscall.text) probe.system_call = static_cast<int>(number);
  return probe;
}

std::string OsThreadName(pid_t tid) {
  const ProcText comm(tid, "comm");
  std::string name = comm.text;
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return name;
}

}  // namespace stillpoint
