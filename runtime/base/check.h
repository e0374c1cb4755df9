// How the runtime dies: one sentence on standard error, then abort().
//
// Misuse and broken invariants end the process at once, with a sentence that
// says what was done and what to do instead. Dying takes no lock and allocates
// nothing, so it works while any lock is held and inside a stopped world
// (incident B11: a lock-order reporter that took a ranked lock itself).

#ifndef STILLPOINT_RUNTIME_BASE_CHECK_H_
#define STILLPOINT_RUNTIME_BASE_CHECK_H_

#include <initializer_list>
#include <string_view>

namespace stillpoint {

// True where debug checks are compiled in: every build without NDEBUG.
#ifdef NDEBUG
inline constexpr bool kDebugChecks = false;
#else
inline constexpr bool kDebugChecks = true;
#endif

// Writes "stillpoint: " and `parts`, joined, to standard error in one write(2)
// and aborts. Any thread, any state. A message over 1,000 characters is cut.
[[noreturn]] void Die(std::initializer_list<std::string_view> parts);

}  // namespace stillpoint

// Dies with the sentence made of the string parts unless `condition` holds.
#define STILLPOINT_CHECK(condition, ...) \
  do {                                   \
    if (!(condition)) [[unlikely]]       \
      ::stillpoint::Die({__VA_ARGS__});  \
  } while (false)

// The same, in builds with debug checks only. `condition` is always compiled.
#define STILLPOINT_DCHECK(condition, ...)       \
  do {                                          \
    if constexpr (::stillpoint::kDebugChecks) { \
      if (!(condition)) [[unlikely]]            \
        ::stillpoint::Die({__VA_ARGS__});       \
    }                                           \
  } while (false)

#endif  // STILLPOINT_RUNTIME_BASE_CHECK_H_
