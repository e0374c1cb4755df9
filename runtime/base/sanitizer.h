// Which sanitizer the code is compiled for, if any. g++ and clang say it in
// different ways.

#ifndef STILLPOINT_RUNTIME_BASE_SANITIZER_H_
#define STILLPOINT_RUNTIME_BASE_SANITIZER_H_

#if defined(__SANITIZE_ADDRESS__)
#define STILLPOINT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STILLPOINT_ASAN 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define STILLPOINT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STILLPOINT_TSAN 1
#endif
#endif

#endif  // STILLPOINT_RUNTIME_BASE_SANITIZER_H_
