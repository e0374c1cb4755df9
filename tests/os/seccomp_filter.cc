#include "tests/os/seccomp_filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <thread>
#include <vector>

namespace stillpoint::testing {

bool DenySystemCalls(std::initializer_list<DeniedCall> calls) {
  std::vector<sock_filter> program;
  program.push_back(
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const DeniedCall& call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                               static_cast<uint32_t>(call.number), 0, 1));
    program.push_back(
        BPF_STMT(BPF_RET | BPF_K,
                 SECCOMP_RET_ERRNO | static_cast<uint32_t>(call.error)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog filter;
  filter.len = static_cast<unsigned short>(program.size());
  filter.filter = program.data();
  // Without privileges a filter may only be set where no program can gain some.
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

bool RunDenied(std::initializer_list<DeniedCall> calls,
               const std::function<void()>& f) {
  bool denied = false;
  std::thread thread([&] {
    denied = DenySystemCalls(calls);
    if (denied) f();
  });
  thread.join();
  return denied;
}

bool RunWithoutThreadCreation(const std::function<void()>& f) {
  return RunDenied({{SYS_clone, EAGAIN}, {SYS_clone3, EAGAIN}}, f);
}

}  // namespace stillpoint::testing
