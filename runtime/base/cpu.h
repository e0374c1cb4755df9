// Facts about the processor that layouts and spin loops depend on.

#ifndef STILLPOINT_RUNTIME_BASE_CPU_H_
#define STILLPOINT_RUNTIME_BASE_CPU_H_

#include <cstddef>

namespace stillpoint {

// The unit of sharing between cores on x86-64 and on most aarch64 parts. Not
// std::hardware_destructive_interference_size, which g++ warns may differ
// between translation units.
inline constexpr size_t kCacheLineSize = 64;

// Tells the core that this is a spin loop.
inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#else
  asm volatile("" ::: "memory");
#endif
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_BASE_CPU_H_
