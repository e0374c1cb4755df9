// How many processors' worth of time this process may use, and staying on one.

#ifndef STILLPOINT_RUNTIME_OS_PROCESSORS_H_
#define STILLPOINT_RUNTIME_OS_PROCESSORS_H_

#include <cstdint>
#include <string>

namespace stillpoint {

// Processors that the process may use: those of its affinity mask, but no more
// than the quota of its control group pays for (version 1 and 2, its own group
// and those above it), rounded up. At least 1. Reads some files of /proc and
// /sys; without them the mask alone counts.
int UsableProcessors();

// The same from files under `root`, for tests: root + "/proc/self/cgroup",
// root + "/proc/self/mountinfo". `allowed` are the affinity mask's.
int UsableProcessorsIn(const std::string& root, int allowed);

// Binds the calling thread to one of the processors that it may use: number
// `index`, counted round and round. False if the system refuses.
bool PinCurrentThread(uint32_t index);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_PROCESSORS_H_
