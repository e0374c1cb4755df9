#include "runtime/os/timer_slack.h"

#include <linux/prctl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <optional>

namespace stillpoint {

std::optional<uint64_t> ReadTimerSlack() {
  // Not prctl(), whose int is too short for the answer.
  const long slack = syscall(SYS_prctl, PR_GET_TIMERSLACK, 0L, 0L, 0L, 0L);
  if (slack == -1) return std::nullopt;
  return static_cast<uint64_t>(slack);
}

bool TimerSlackApplies() {
  switch (sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) {
    case SCHED_OTHER:
    case SCHED_BATCH:
    case SCHED_IDLE:
      return true;
    default:
      return false;
  }
}

bool WriteTimerSlack(uint64_t nanos) {
  return syscall(SYS_prctl, PR_SET_TIMERSLACK, nanos, 0L, 0L, 0L) == 0;
}

}  // namespace stillpoint
