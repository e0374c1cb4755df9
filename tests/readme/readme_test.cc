// README.md shows what is compiled and what exists.

#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "runtime/options.h"

namespace stillpoint {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ReadmeTest, ShowsTheEmbeddingExampleWordForWord) {
  const std::string readme = ReadFile("README.md");
  const std::string begin = "```cpp\n";
  const size_t from = readme.find(begin);
  ASSERT_NE(from, std::string::npos);
  const size_t code = from + begin.size();
  const size_t to = readme.find("```", code);
  ASSERT_NE(to, std::string::npos);
  EXPECT_EQ(readme.substr(code, to - code), ReadFile("examples/embedding.cc"));
}

TEST(ReadmeTest, TheTestCommandIsTheOneThatTheCheckRuns) {
  const std::string readme = ReadFile("README.md");
  const std::string command = "./bazelw test //...\n";
  EXPECT_NE(readme.find("```sh\n" + command + "```"), std::string::npos);
  EXPECT_NE(ReadFile(".ci/run").find(command), std::string::npos);
}

TEST(ReadmeTest, NamesEveryFlagOfThreadStorm) {
  const std::string readme = ReadFile("README.md");
  const std::string source = ReadFile("examples/thread_storm.cc");
  const std::regex flag("ABSL_FLAG\\([^,]+, ([a-z_]+),");
  int flags = 0;
  for (std::sregex_iterator it(source.begin(), source.end(), flag), end;
       it != end; ++it, ++flags) {
    EXPECT_NE(readme.find("`--" + (*it)[1].str()), std::string::npos)
        << (*it)[1];
  }
  EXPECT_GT(flags, 5);
}

TEST(ReadmeTest, TheOptionsTableIsTheGeneratedOne) {
  EXPECT_NE(ReadFile("README.md").find("\n\n" + OptionsTable() + "\n"),
            std::string::npos)
      << "README.md should have this table:\n"
      << OptionsTable();
}

}  // namespace
}  // namespace stillpoint
