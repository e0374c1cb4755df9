#include "runtime/base/clock.h"

#include <time.h>

#include <chrono>
#include <cstdint>

namespace stillpoint {

int64_t MonotonicNanos() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);  // cannot fail for this clock
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Deadline Deadline::After(std::chrono::nanoseconds timeout) {
  const int64_t now = MonotonicNanos();
  const int64_t delta = timeout.count();
  if (delta <= 0) return Deadline(now);
  if (delta >= kNever - now) return Infinite();
  return Deadline(now + delta);
}

}  // namespace stillpoint
