// Which sanitizer a test runs under, where that makes part of it impossible.

#ifndef STILLPOINT_TESTS_BASE_SANITIZERS_H_
#define STILLPOINT_TESTS_BASE_SANITIZERS_H_

#include "runtime/base/sanitizer.h"

namespace stillpoint::testing {

#if defined(STILLPOINT_ASAN)
inline constexpr bool kAsan = true;
#else
inline constexpr bool kAsan = false;
#endif

#if defined(STILLPOINT_TSAN)
inline constexpr bool kTsan = true;
#else
inline constexpr bool kTsan = false;
#endif

// Rounds of a stress loop: sanitizers run it some ten times slower.
constexpr int Rounds(int plain) {
  return kAsan || kTsan ? (plain + 9) / 10 : plain;
}

}  // namespace stillpoint::testing

#endif  // STILLPOINT_TESTS_BASE_SANITIZERS_H_
