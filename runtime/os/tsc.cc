#include "runtime/os/tsc.h"

#include <time.h>

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace stillpoint {

bool HasInvariantTsc() {
#if defined(__x86_64__)
  unsigned int eax = 0;
  unsigned int ebx = 0;
  unsigned int ecx = 0;
  unsigned int edx = 0;
  constexpr unsigned int kLeaf = 0x80000007;
  // Looks at the highest supported leaf itself.
  if (__get_cpuid(kLeaf, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & (1u << 8)) != 0;
#else
  return false;
#endif
}

TscSample SampleTsc() {
  constexpr int kAttempts = 10;
  TscSample best;
  uint64_t best_gap = UINT64_MAX;
  for (int i = 0; i < kAttempts; ++i) {
    timespec time;
    const uint64_t before = ReadTsc();
    // Raw: not slewed, like the kernel's own accounting.
    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    const uint64_t gap = ReadTsc() - before;
    if (gap >= best_gap) continue;
    best_gap = gap;
    best.ticks = before + gap / 2;
    best.nanos = int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }
  return best;
}

uint32_t TscMultiplier(const TscSample& begin, const TscSample& end) {
  if (end.ticks <= begin.ticks || end.nanos <= begin.nanos) return 0;
  const double nanos = static_cast<double>(end.nanos - begin.nanos);
  const double ticks = static_cast<double>(end.ticks - begin.ticks);
  const double multiplier =
      nanos / ticks * static_cast<double>(uint64_t{1} << kTscShift);
  if (multiplier < 1 || multiplier > UINT32_MAX) return 0;
  return static_cast<uint32_t>(multiplier + 0.5);
}

}  // namespace stillpoint
