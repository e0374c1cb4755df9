// Which sanitizer a test runs under, where that makes part of it impossible.

#ifndef STILLPOINT_TESTS_BASE_SANITIZERS_H_
#define STILLPOINT_TESTS_BASE_SANITIZERS_H_

namespace stillpoint::testing {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAsan = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kAsan = true;
#else
inline constexpr bool kAsan = false;
#endif
#else
inline constexpr bool kAsan = false;
#endif

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kTsan = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kTsan = true;
#else
inline constexpr bool kTsan = false;
#endif
#else
inline constexpr bool kTsan = false;
#endif

// Rounds of a stress loop: sanitizers run it some ten times slower.
constexpr int Rounds(int plain) {
  return kAsan || kTsan ? (plain + 9) / 10 : plain;
}

}  // namespace stillpoint::testing

#endif  // STILLPOINT_TESTS_BASE_SANITIZERS_H_
