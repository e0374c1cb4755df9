// docs/memory_ordering.md against the code: every atomic operation weaker than
// seq_cst has the id of its pair (M1, M2, ...) in its comment, and the page
// says of each id what the code says, in the same files.

#include <cctype>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace stillpoint {
namespace {

constexpr char kPage[] = "docs/memory_ordering.md";
constexpr char kCode[] = "runtime";

// How far above an operation its comment may be. A longer way is more likely to
// find the comment of another one.
constexpr size_t kLinesAbove = 12;

using Lines = std::vector<std::string>;

Lines ReadLines(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  Lines lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

bool IsWordChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// The ids in `text`: M and a number, as a word.
std::set<std::string> IdsIn(std::string_view text) {
  std::set<std::string> ids;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != 'M' || (i > 0 && IsWordChar(text[i - 1]))) continue;
    size_t end = i + 1;
    while (end < text.size() && std::isdigit(text[end]) != 0) ++end;
    if (end == i + 1 || (end < text.size() && IsWordChar(text[end]))) continue;
    ids.emplace(text.substr(i, end - i));
  }
  return ids;
}

std::string_view CodeOf(std::string_view line) {
  return line.substr(0, line.find("//"));
}

std::string_view CommentOf(std::string_view line) {
  const size_t begin = line.find("//");
  return begin == std::string_view::npos ? "" : line.substr(begin);
}

bool IsWeak(std::string_view line) {
  for (const char* order :
       {"relaxed", "acquire", "release", "acq_rel", "consume"}) {
    for (const char* prefix : {"memory_order_", "memory_order::"}) {
      const std::string name = std::string(prefix) + order;
      const size_t at = CodeOf(line).find(name);
      if (at == std::string_view::npos) continue;
      const size_t end = at + name.size();
      if (end == CodeOf(line).size() || !IsWordChar(line[end])) return true;
    }
  }
  return false;
}

// Whether the comments on line `at`, or a little above it in the same function,
// have an id.
bool HasIdNear(const Lines& lines, size_t at) {
  for (size_t up = 0; up <= kLinesAbove && up <= at; ++up) {
    const std::string& line = lines[at - up];
    if (up > 0 && !line.empty() && line[0] == '}') return false;
    if (!IdsIn(CommentOf(line)).empty()) return true;
  }
  return false;
}

// One line of the page under an id: "- `file` `function`, `function`: ...".
struct Side {
  std::string file;
  std::vector<std::string> names;
};

struct Pair {
  size_t line = 0;  // of the heading
  std::vector<Side> sides;
};

Side ParseSide(std::string_view line) {
  Side side;
  line = line.substr(0, line.find(": "));
  while (true) {
    const size_t begin = line.find('`');
    if (begin == std::string_view::npos) return side;
    const size_t end = line.find('`', begin + 1);
    if (end == std::string_view::npos) return side;
    std::string word(line.substr(begin + 1, end - begin - 1));
    if (side.file.empty()) {
      side.file = std::move(word);
    } else {
      side.names.push_back(std::move(word));
    }
    line.remove_prefix(end + 1);
  }
}

class MemoryOrderingDocTest : public testing::Test {
 protected:
  MemoryOrderingDocTest() {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(kCode)) {
      const std::filesystem::path& path = entry.path();
      if (path.extension() != ".h" && path.extension() != ".cc") continue;
      code_[path.lexically_relative(kCode).string()] = ReadLines(path);
    }
    Pair* current = nullptr;
    const Lines page = ReadLines(kPage);
    for (size_t i = 0; i < page.size(); ++i) {
      const std::string& line = page[i];
      if (line.rfind("### M", 0) == 0) {
        const std::string id = line.substr(4, line.find(':') - 4);
        EXPECT_EQ(pairs_.count(id), 0u)
            << kPage << ":" << i + 1 << ": " << id
            << " is there twice. Give the new one a number of its own.";
        current = &pairs_[id];
        current->line = i + 1;
      } else if (!line.empty() && line[0] == '#') {
        current = nullptr;
      } else if (current != nullptr && line.rfind("- `", 0) == 0) {
        current->sides.push_back(ParseSide(line));
      }
    }
  }

  std::string At(const std::string& id) const {
    return std::string(kPage) + ":" + std::to_string(pairs_.at(id).line) +
           ": " + id;
  }

  // The ids in the comments of a file.
  static std::set<std::string> IdsOf(const Lines& lines) {
    std::set<std::string> ids;
    for (const std::string& line : lines) ids.merge(IdsIn(CommentOf(line)));
    return ids;
  }

  static bool Mentions(const Lines& lines, const std::string& name) {
    for (const std::string& line : lines) {
      if (CodeOf(line).find(name) != std::string_view::npos) return true;
    }
    return false;
  }

  std::map<std::string, Lines> code_;  // by path below runtime/
  std::map<std::string, Pair> pairs_;  // by id
};

TEST_F(MemoryOrderingDocTest, FindsBoth) {
  EXPECT_GT(code_.size(), 50u) << "Add the filegroups `sources` of runtime/ to "
                                  "the test's data.";
  EXPECT_GT(pairs_.size(), 20u) << "Headings are `### M1: what it is about`.";
}

TEST_F(MemoryOrderingDocTest, EveryWeakOrderHasAnId) {
  for (const auto& [file, lines] : code_) {
    for (size_t i = 0; i < lines.size(); ++i) {
      if (!IsWeak(lines[i])) continue;
      EXPECT_TRUE(HasIdNear(lines, i))
          << kCode << "/" << file << ":" << i + 1 << ": " << lines[i]
          << "\nThis order is weaker than seq_cst, and no comment on this line "
             "or the "
          << kLinesAbove
          << " lines above says which pair it belongs to. Write why the order "
             "is enough and who the partner is, with the id of the pair, as in "
             "`// release (M7): ...`. If it is a new pair, add a section to "
          << kPage << " under the next free number.";
    }
  }
}

TEST_F(MemoryOrderingDocTest, EveryIdInTheCodeIsOnThePage) {
  for (const auto& [file, lines] : code_) {
    for (const std::string& id : IdsOf(lines)) {
      const auto pair = pairs_.find(id);
      if (pair == pairs_.end()) {
        ADD_FAILURE() << kCode << "/" << file << " has a comment with " << id
                      << ", but " << kPage << " has no section `### " << id
                      << ": ...`. Write it, or correct the number.";
        continue;
      }
      bool named = false;
      for (const Side& side : pair->second.sides) named |= side.file == file;
      EXPECT_TRUE(named) << kCode << "/" << file << " has a comment with " << id
                         << ", but " << At(id)
                         << " does not name this file. Add a line\n- `" << file
                         << "` `Function`: what it does, in which order\nto "
                            "that section.";
    }
  }
}

TEST_F(MemoryOrderingDocTest, EverySideOnThePageIsInTheCode) {
  for (const auto& [id, pair] : pairs_) {
    EXPECT_FALSE(pair.sides.empty())
        << At(id)
        << " names no file. Add a line\n- `file` `Function`: what it does, in "
           "which order\nfor each side.";
    for (const Side& side : pair.sides) {
      const auto code = code_.find(side.file);
      if (code == code_.end()) {
        ADD_FAILURE() << At(id) << " names " << side.file
                      << ", which is not a file below " << kCode
                      << "/. Correct the path.";
        continue;
      }
      EXPECT_EQ(IdsOf(code->second).count(id), 1u)
          << At(id) << " names " << side.file
          << ", but no comment in that file has the id. Add it to the comment "
             "of the operation, or, if the operation is gone, drop the side "
             "(or the section) from the page.";
      EXPECT_FALSE(side.names.empty())
          << At(id) << " does not say where in " << side.file
          << " the operation is: - `file` `Function`: ...";
      for (const std::string& name : side.names) {
        EXPECT_TRUE(Mentions(code->second, name))
            << At(id) << " names " << name << " in " << side.file
            << ", but it is not there. Say where the operation is now.";
      }
    }
  }
}

}  // namespace
}  // namespace stillpoint
