#include "runtime/thread/fence.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/os/membarrier.h"
#include "runtime/os/os_thread.h"

namespace stillpoint {
namespace {

// What a stop may spend on its membarrier. A running thread that polls is
// reached in a fraction of a microsecond, so the membarrier is nearly all of
// the time to safepoint then; a round trip of transitions costs some 7 ns more
// with fences. At 5 µs, fences win up to about 700 round trips a stop.
constexpr int64_t kMembarrierThresholdNanos = 5'000;

FenceChoice Full(bool has_membarrier, std::string reason) {
  FenceChoice choice;
  choice.mode.enter_fenced = true;
  // With membarrier at hand the stopper pays one before it sleeps, so that
  // leaving needs no fence.
  choice.mode.leave_fenced = !has_membarrier;
  choice.reason = absl::StrCat("fence = full: ", reason);
  return choice;
}

FenceChoice ByMembarrier(std::string reason) {
  FenceChoice choice;
  choice.mode.enter_fenced = false;
  choice.mode.leave_fenced = false;
  choice.reason = absl::StrCat("fence = membarrier: ", reason);
  return choice;
}

}  // namespace

absl::StatusOr<FenceChoice> ChooseFence(FencePolicy policy) {
  const bool has_membarrier = RegisterMembarrier();
  switch (policy) {
    case FencePolicy::kFull:
      return Full(has_membarrier, "asked for");
    case FencePolicy::kMembarrier:
      if (!has_membarrier) {
        return absl::FailedPreconditionError(
            "fence = membarrier was asked for, but the kernel refuses "
            "MEMBARRIER_CMD_PRIVATE_EXPEDITED (older than Linux 4.14, or "
            "seccomp): use fence = auto or fence = full");
      }
      return ByMembarrier("asked for");
    case FencePolicy::kAuto:
      break;
  }
  if (!has_membarrier) return Full(false, "the kernel refuses membarrier");
  if (AllowedCpuCount() == 1) return ByMembarrier("one processor is allowed");
  const int64_t cost = MeasureMembarrierNanos();
  if (cost < 0) return Full(true, "membarrier could not be measured");
  if (cost > kMembarrierThresholdNanos) {
    return Full(true, absl::StrCat("membarrier costs ", cost,
                                   " ns with a running peer"));
  }
  return ByMembarrier(
      absl::StrCat("it costs ", cost, " ns with a running peer"));
}

}  // namespace stillpoint
