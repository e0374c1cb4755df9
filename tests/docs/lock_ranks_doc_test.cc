// docs/lock_ranks.md shows the table of runtime/lock/lock_rank.h: the same
// locks, in the same order, with the same ranks and the same words.

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/lock/lock_rank.h"

namespace stillpoint {
namespace {

constexpr char kPage[] = "docs/lock_ranks.md";

std::vector<std::string> ReadLines(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::string Row(std::string_view rank, std::string_view lock,
                std::string_view purpose) {
  std::string row = "| ";
  row.append(rank).append(" | ").append(lock).append(" | ");
  row.append(purpose).append(" |");
  return row;
}

TEST(LockRanksDocTest, TableIsTheOneInTheCode) {
  std::vector<std::string> wanted = {Row("rank", "lock", "purpose"),
                                     "|---|---|---|"};
  for (const LockRank& lock : kLockRanks) {
    wanted.push_back(Row(std::to_string(lock.rank), lock.name, lock.purpose));
  }
  // The only table of the page: every line that begins with a bar.
  std::vector<std::string> shown;
  for (const std::string& line : ReadLines(kPage)) {
    if (!line.empty() && line[0] == '|') shown.push_back(line);
  }
  EXPECT_EQ(shown, wanted) << "Write in " << kPage
                           << " what runtime/lock/lock_rank.h says.";
}

TEST(LockRanksDocTest, NamesTheFirstRankOfEmbedders) {
  const std::string wanted =
      "kFirstEmbedderRank` (" + std::to_string(kFirstEmbedderRank) + ")";
  bool found = false;
  for (const std::string& line : ReadLines(kPage)) {
    found = found || line.find(wanted) != std::string::npos;
  }
  EXPECT_TRUE(found) << wanted;
}

}  // namespace
}  // namespace stillpoint
