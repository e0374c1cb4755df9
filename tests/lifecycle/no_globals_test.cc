// Incident E2: destructors at exit that join or free while threads run. The
// library has no global objects that need code to run before main or at exit.

#include <stdio.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/sanitizer.h"

#if defined(STILLPOINT_ASAN) || defined(STILLPOINT_TSAN)
#define INSTRUMENTED 1
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

constexpr char kProgram[] = "tests/lifecycle/whole_library";

bool Has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// The name in a line like "0000000000001234 <name>:", else empty.
std::string FunctionBegun(const std::string& line) {
  const size_t begin = line.find('<');
  const size_t end = line.rfind(">:");
  if (line[0] == ' ' || begin == std::string::npos || end < begin) return "";
  if (end == std::string::npos) return "";
  return line.substr(begin + 1, end - begin - 1);
}

// Whether it constructs the globals of one object file; the names are those of
// g++ and clang++. Abseil's own object files are Abseil's business.
bool ConstructsGlobals(const std::string& function) {
  if (Has(function, "absl") && !Has(function, "stillpoint")) return false;
  return Has(function, "_GLOBAL__sub_") || Has(function, "_GLOBAL__I_") ||
         Has(function, "_GLOBAL__D_") ||
         Has(function, "__static_initialization_and_destruction") ||
         Has(function, "__cxx_global_var_init");
}

// What such a function may call: <iostream>, which Abseil's headers include,
// makes every file that sees it initialise the standard streams.
bool IsOfStandardStreams(const std::string& line) {
  return Has(line, "std::ios_base::Init::") || Has(line, "__cxa_atexit") ||
         Has(line, "__static_initialization_and_destruction") ||
         Has(line, "__cxx_global_var_init") || Has(line, "_GLOBAL__sub_");
}

TEST(NoGlobalsTest, NoCodeOfOursRunsBeforeMainOrAtExit) {
#ifdef INSTRUMENTED
  GTEST_SKIP() << "instrumentation registers each object file at start";
#endif
  std::vector<std::string> found;
  std::vector<std::string> functions;
  bool constructs = false;
  int at_exit = 0;
  for (const std::string& line :
       LinesOf(std::string("objdump -dC --no-show-raw-insn ") + kProgram)) {
    if (const std::string begun = FunctionBegun(line); !begun.empty()) {
      functions.push_back(begun);
      constructs = ConstructsGlobals(begun);
      at_exit = 0;
    }
    if (!constructs || !(Has(line, "call") || Has(line, "jmp"))) continue;
    // The one registration is that of the streams.
    if (Has(line, "__cxa_atexit") && ++at_exit == 1) continue;
    if (at_exit < 2 && IsOfStandardStreams(line)) continue;
    found.push_back(functions.back() + ": " + line);
  }
  EXPECT_THAT(found, IsEmpty());
  // The library was really looked at, from its outermost floor to its lowest.
  EXPECT_THAT(functions, Contains(HasSubstr("stillpoint::Runtime::Create(")));
  EXPECT_THAT(functions, Contains(HasSubstr("stillpoint::FutexWaitRaw(")));
}

// A static local that is constructed at run time has a guard variable, and if
// it needs one a destructor at exit.
TEST(NoGlobalsTest, NoGuardedStaticLocals) {
  std::vector<std::string> found;
  size_t ours = 0;
  for (const std::string& symbol : LinesOf(std::string("nm ") + kProgram)) {
    ours += Has(symbol, "10stillpoint");
    if (Has(symbol, "_ZGVZN10stillpoint")) found.push_back(symbol);
  }
  EXPECT_THAT(found, IsEmpty());
  EXPECT_GT(ours, 0u);
}

}  // namespace
