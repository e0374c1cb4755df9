// The border between std::string_view and Abseil's.

#ifndef STILLPOINT_RUNTIME_BASE_ABSL_STRING_H_
#define STILLPOINT_RUNTIME_BASE_ABSL_STRING_H_

#include <string_view>

#include "absl/strings/string_view.h"

namespace stillpoint {

// Distributions build Abseil with a string_view of its own, which its StrCat
// takes and std::string_view is not; where the two are one type this is the
// identity.
inline absl::string_view ToAbsl(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_BASE_ABSL_STRING_H_
