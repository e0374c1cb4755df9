// What the system allows, as text for error messages.

#ifndef STILLPOINT_RUNTIME_OS_LIMITS_H_
#define STILLPOINT_RUNTIME_OS_LIMITS_H_

#include <string>

namespace stillpoint {

// The first line of a file of /proc, as vm.max_map_count; "unknown" if it
// cannot be read.
std::string FirstLine(const char* path);

// The soft limit of RLIMIT_...: a number or "unlimited".
std::string LimitText(int resource);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_LIMITS_H_
