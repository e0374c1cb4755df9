// Incident E2: destructors at exit that join or free while threads run. The
// library has no global objects that need code to run before main or at exit,
// so there is nothing of the kind in it.

#include <stdio.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INSTRUMENTED 1
#endif
#endif

namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> LinesOf(const std::string& command) {
  std::vector<std::string> lines;
  FILE* pipe = popen(command.c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  if (pipe == nullptr) return lines;
  char* line = nullptr;
  size_t capacity = 0;
  while (getline(&line, &capacity, pipe) > 0) lines.emplace_back(line);
  free(line);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return lines;
}

std::vector<std::string> Symbols() {
  return LinesOf("nm tests/lifecycle/whole_library");
}

TEST(NoGlobalsTest, NoCodeRunsBeforeMainOrAtExit) {
#ifdef INSTRUMENTED
  GTEST_SKIP() << "instrumentation registers each object file at start";
#endif
  const std::vector<std::string> symbols = Symbols();
  // The library is really in there, whole: its outermost and innermost floor.
  ASSERT_THAT(symbols, Contains(HasSubstr("N10stillpoint7Runtime6Create")));
  ASSERT_THAT(symbols, Contains(HasSubstr("N10stillpoint12FutexWaitRaw")));
  std::vector<std::string> found;
  for (const std::string& symbol : symbols) {
    // What g++ and clang++ call the code that constructs or destroys the
    // globals of one object file, and a global's guard.
    const bool runs_code =
        symbol.find("_GLOBAL__sub_") != std::string::npos ||
        symbol.find("_GLOBAL__I_") != std::string::npos ||
        symbol.find("_GLOBAL__D_") != std::string::npos ||
        symbol.find("__cxx_global_var_init") != std::string::npos ||
        symbol.find("__static_initialization_and_dest") != std::string::npos;
    // Abseil's own objects are Abseil's business.
    const bool abseils = symbol.find("absl") != std::string::npos &&
                         symbol.find("stillpoint") == std::string::npos;
    if (runs_code && !abseils) found.push_back(symbol);
    // A static local of ours that is constructed at run time is guarded by such
    // a variable.
    if (symbol.find("_ZGVZN10stillpoint") != std::string::npos) {
      found.push_back(symbol);
    }
  }
  EXPECT_THAT(found, IsEmpty());
}

}  // namespace
