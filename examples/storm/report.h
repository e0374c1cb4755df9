// What a storm found out, for people and for machines.

#ifndef STILLPOINT_EXAMPLES_STORM_REPORT_H_
#define STILLPOINT_EXAMPLES_STORM_REPORT_H_

#include <string>
#include <vector>

#include "examples/storm/storm.h"

namespace stillpoint::storm {

// A table with one line a protocol, the ratios between neighbours, and a small
// histogram of the time to safepoint. A quantile for which there are too few
// samples is printed as the maximum and marked.
std::string FormatTable(const std::vector<StormResult>& results);

// One JSON object: {"protocols":[…]}. Times in nanoseconds.
std::string FormatJson(const std::vector<StormResult>& results);

}  // namespace stillpoint::storm

#endif  // STILLPOINT_EXAMPLES_STORM_REPORT_H_
