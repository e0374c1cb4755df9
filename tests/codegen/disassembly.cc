#include "tests/codegen/disassembly.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace stillpoint::testing {
namespace {

// Prefixes that objdump prints as words of their own.
bool IsPrefix(const std::string& word) {
  return word == "data16" || word == "cs" || word == "lock" || word == "rep" ||
         word == "repz" || word == "bnd" || word == "notrack";
}

// "  58:\tmov    edx,DWORD PTR [r13+0x0]        # comment"
bool ParseInstruction(const std::string& line, Instruction& out) {
  static const std::regex kLine(R"(^\s*([0-9a-f]+):\t([^#<]*).*$)");
  std::smatch match;
  if (!std::regex_match(line, match, kLine)) return false;
  out.address = std::stoull(match[1], nullptr, 16);
  std::istringstream words(match[2]);
  while (words >> out.mnemonic && IsPrefix(out.mnemonic)) {
  }
  std::getline(words >> std::ws, out.operands);
  out.operands.erase(out.operands.find_last_not_of(" \t") + 1);
  return true;
}

// "\t\t\t88: R_X86_64_PLT32\t_ZN10stillpoint8PollSlowERNS_6ThreadE-0x4"
bool ParseRelocation(const std::string& line, std::string& symbol) {
  static const std::regex kLine(
      R"(^\s+[0-9a-f]+: R_X86_64_\w+\s+(\S+?)([-+]0x[0-9a-f]+)?$)");
  std::smatch match;
  if (!std::regex_match(line, match, kLine)) return false;
  symbol = match[1];
  return true;
}

}  // namespace

void Function::Append(Instruction instruction) {
  code_.push_back(std::move(instruction));
}

std::vector<size_t> Function::CallFreeNext(size_t index) const {
  std::vector<size_t> next;
  const Instruction& at = code_[index];
  if (at.IsCall() || at.IsReturn() || at.mnemonic == "ud2") return next;
  if (at.mnemonic != "jmp" && index + 1 < code_.size()) {
    next.push_back(index + 1);
  }
  // A relocated jump leaves the section: a tail call, or code put with the
  // unlikely.
  if (at.IsJump() && at.symbol.empty()) {
    const uint64_t target = std::stoull(at.operands, nullptr, 16);
    for (size_t i = 0; i < code_.size(); ++i) {
      if (code_[i].address == target) next.push_back(i);
    }
  }
  std::erase_if(next, [this](size_t i) { return code_[i].IsCall(); });
  return next;
}

std::vector<bool> Function::ReachedFrom(size_t index) const {
  std::vector<bool> reached(code_.size(), false);
  std::vector<size_t> todo = {index};
  while (!todo.empty()) {
    const size_t at = todo.back();
    todo.pop_back();
    for (size_t next : CallFreeNext(at)) {
      if (reached[next]) continue;
      reached[next] = true;
      todo.push_back(next);
    }
  }
  return reached;
}

std::vector<size_t> Function::CallFreeLoop() const {
  const std::vector<bool> from_entry = ReachedFrom(0);
  std::vector<size_t> loop;
  for (size_t i = 0; i < code_.size(); ++i) {
    if (from_entry[i] && ReachedFrom(i)[i]) loop.push_back(i);
  }
  return loop;
}

std::vector<size_t> Function::CallFreeWays() const {
  std::vector<bool> from_entry = ReachedFrom(0);
  from_entry[0] = true;
  std::vector<size_t> ways;
  for (size_t i = 0; i < code_.size(); ++i) {
    if (!from_entry[i] || code_[i].IsCall()) continue;
    const std::vector<bool> onwards = ReachedFrom(i);
    bool returns = code_[i].IsReturn();
    for (size_t j = 0; j < code_.size() && !returns; ++j) {
      returns = onwards[j] && code_[j].IsReturn();
    }
    if (returns) ways.push_back(i);
  }
  return ways;
}

std::vector<std::string> Function::Callees() const {
  std::vector<std::string> callees;
  for (const Instruction& instruction : code_) {
    if (instruction.IsCall()) {
      callees.push_back(instruction.symbol.empty() ? instruction.operands
                                                   : instruction.symbol);
    }
  }
  return callees;
}

std::string Function::Text(const std::vector<size_t>& indices) const {
  std::ostringstream text;
  for (size_t i : indices) {
    const Instruction& at = code_[i];
    text << "  " << std::hex << at.address << std::dec << ": " << at.mnemonic
         << " " << at.operands << " " << at.symbol << "\n";
  }
  return text.str();
}

std::string Function::Text() const {
  std::vector<size_t> all(code_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  return Text(all);
}

Disassembly Disassemble(const std::string& path) {
  const std::string command =
      "objdump --disassemble --reloc --no-show-raw-insn -M intel '" + path +
      "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  size_t size;
  while ((size = fread(buffer, 1, sizeof(buffer), pipe)) > 0) {
    output.append(buffer, size);
  }
  if (pclose(pipe) != 0) {
    ADD_FAILURE() << command << " (binutils) failed: " << output;
    return {};
  }

  static const std::regex kHeader("^[0-9a-f]+ <([^>]+)>:$");
  Disassembly result;
  Function* function = nullptr;
  Instruction pending;
  bool has_pending = false;
  const auto finish = [&] {
    if (has_pending && function != nullptr) function->Append(pending);
    has_pending = false;
  };
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    Instruction instruction;
    std::string symbol;
    if (std::regex_match(line, match, kHeader)) {
      finish();
      function = &result[match[1]];
    } else if (ParseRelocation(line, symbol)) {
      pending.symbol = symbol;
    } else if (ParseInstruction(line, instruction)) {
      finish();
      pending = instruction;
      has_pending = true;
    }
  }
  finish();
  return result;
}

bool IsInstrumented(const Disassembly& disassembly) {
  for (const auto& [name, function] : disassembly) {
    for (const std::string& callee : function.Callees()) {
      for (const char* prefix : {"__asan_", "__ubsan_", "__tsan_", "__gcov_"}) {
        if (callee.starts_with(prefix)) return true;
      }
    }
  }
  return false;
}

}  // namespace stillpoint::testing
