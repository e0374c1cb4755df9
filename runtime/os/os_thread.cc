#include "runtime/os/os_thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/os/limits.h"

namespace stillpoint {
namespace {

absl::Status CreationError(int error, size_t stack_size) {
  if (error == EINVAL) {
    return absl::InvalidArgumentError(
        absl::StrCat("the system refuses a thread stack of ", stack_size,
                     " bytes; use at least ", sysconf(_SC_THREAD_STACK_MIN),
                     " bytes, or 0 for the default"));
  }
  // The kernel says EAGAIN for every limit alike, and glibc turns ENOMEM for
  // the stack into it too (pthread_create(3)), so all candidates are named.
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot create an OS thread: ", std::strerror(error),
      ". Limits that can be the cause: max user processes (ulimit -u) = ",
      LimitText(RLIMIT_NPROC),
      ", kernel.threads-max = ", FirstLine("/proc/sys/kernel/threads-max"),
      ", kernel.pid_max = ", FirstLine("/proc/sys/kernel/pid_max"),
      ", vm.max_map_count = ", FirstLine("/proc/sys/vm/max_map_count"),
      ", address space (ulimit -v) = ", LimitText(RLIMIT_AS),
      ", pids.max of the cgroup; a stack of ",
      stack_size == 0 ? "default size" : absl::StrCat(stack_size, " bytes"),
      " was asked for. Raise the limit, start fewer threads at once, or use "
      "smaller stacks"));
}

size_t RoundUpToPage(size_t size) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (size > SIZE_MAX - page) return size;  // refused by the system anyway
  return (size + page - 1) / page * page;
}

}  // namespace

absl::Status StartOsThread(const OsThreadOptions& options,
                           void* (*entry)(void*), void* argument) {
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error != 0) return CreationError(error, options.stack_size);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (options.stack_size != 0) {
    error = pthread_attr_setstacksize(&attributes,
                                      RoundUpToPage(options.stack_size));
  }
  if (error == 0 && options.block_signals) {
    sigset_t all;
    sigfillset(&all);
    error = pthread_attr_setsigmask_np(&attributes, &all);
  }
  if (error == 0) {
    pthread_t thread;
    error = pthread_create(&thread, &attributes, entry, argument);
  }
  pthread_attr_destroy(&attributes);
  if (error != 0) return CreationError(error, options.stack_size);
  return absl::OkStatus();
}

pid_t CurrentTid() { return static_cast<pid_t>(syscall(SYS_gettid)); }

void SetCurrentOsThreadName(std::string_view name) {
  constexpr size_t kKernelLimit = 15;  // TASK_COMM_LEN - 1
  size_t length = std::min(name.size(), kKernelLimit);
  // Step back over continuation bytes if the cut falls into a character.
  if (length < name.size()) {
    while (length > 0 &&
           (static_cast<unsigned char>(name[length]) & 0xC0) == 0x80) {
      --length;
    }
  }
  char text[kKernelLimit + 1] = {};
  std::memcpy(text, name.data(), length);
  // Cosmetic: a refusal (seccomp) costs the name and nothing else.
  prctl(PR_SET_NAME, text);
}

StackBounds CurrentStackBounds() {
  StackBounds bounds;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return bounds;
  void* low = nullptr;
  size_t size = 0;
  pthread_attr_getstack(&attributes, &low, &size);
  pthread_attr_destroy(&attributes);
  bounds.low = reinterpret_cast<uintptr_t>(low);
  bounds.high = bounds.low + size;
  return bounds;
}

int AllowedCpuCount() {
  cpu_set_t set;
  // Fails on machines with more processors than the set holds; then any answer
  // above 1 serves the only question asked here: is there a core to spare?
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return std::max<int>(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  }
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace stillpoint
