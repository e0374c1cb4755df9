// Compiled with -fstack-clash-protection.

#include "tests/green/probed_frames.h"

#include <cstddef>

namespace stillpoint::testing {

void TouchLowEndOfLargeFrame() {
  constexpr size_t kSize = size_t{16} << 20;
  volatile char frame[kSize];
  // All of it has to be there.
  asm volatile("" : : "r"(frame) : "memory");
  frame[0] = 1;
  frame[0] = frame[0];
}

}  // namespace stillpoint::testing
