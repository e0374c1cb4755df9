// How the runtime dies: by abort(), with one sentence of its own.

#ifndef STILLPOINT_TESTS_BASE_DEATH_H_
#define STILLPOINT_TESTS_BASE_DEATH_H_

#include <signal.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stillpoint::testing {

// Matches a standard error output that is exactly one line, begins with
// "stillpoint: " and contains each of `parts`. One line and no more is what
// incident B11 asks for: a reporter that trips over itself prints several.
MATCHER_P(IsOneSentenceWith, parts,
          "is one line \"stillpoint: ...\" with each of " +
              ::testing::PrintToString(parts)) {
  const std::string& text = arg;
  constexpr std::string_view kPrefix = "stillpoint: ";
  return text.compare(0, kPrefix.size(), kPrefix) == 0 && text.back() == '\n' &&
         std::count(text.begin(), text.end(), '\n') == 1 &&
         std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
           return text.find(part) != std::string::npos;
         });
}

}  // namespace stillpoint::testing

// The statement ends the process by abort() after one sentence that contains
// each of the strings. Death tests that run threads set the style "threadsafe".
#define EXPECT_DIES_SAYING(statement, ...)                   \
  EXPECT_EXIT(statement, ::testing::KilledBySignal(SIGABRT), \
              ::stillpoint::testing::IsOneSentenceWith(      \
                  std::vector<std::string>{__VA_ARGS__}))

#endif  // STILLPOINT_TESTS_BASE_DEATH_H_
