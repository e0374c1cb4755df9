// Reading what the compiler made of a function: objdump's output as a graph.

#ifndef STILLPOINT_TESTS_CODEGEN_DISASSEMBLY_H_
#define STILLPOINT_TESTS_CODEGEN_DISASSEMBLY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stillpoint::testing {

// One x86-64 instruction, in Intel's syntax.
struct Instruction {
  uint64_t address = 0;
  std::string mnemonic;
  std::string operands;
  std::string symbol;  // that a relocation on it names; else empty

  bool IsCall() const { return mnemonic == "call"; }
  bool IsReturn() const { return mnemonic == "ret"; }
  bool IsJump() const { return mnemonic.starts_with("j"); }
  bool IsConditionalJump() const { return IsJump() && mnemonic != "jmp"; }
};

// One function, in the order of its addresses. Instructions are named by their
// index.
class Function {
 public:
  void Append(Instruction instruction);

  const std::vector<Instruction>& instructions() const { return code_; }
  const Instruction& operator[](size_t index) const { return code_[index]; }

  // The instructions of all loops that run without a call: those from which
  // there is a way back to themselves that passes no call.
  std::vector<size_t> CallFreeLoop() const;

  // The instructions on any way from the entry to a return that passes no call.
  std::vector<size_t> CallFreeWays() const;

  // The names of everything that is called.
  std::vector<std::string> Callees() const;

  // The instructions `indices`, one a line, for messages.
  std::string Text(const std::vector<size_t>& indices) const;
  std::string Text() const;

 private:
  // What may run right after `index`, calls and other sections left out.
  std::vector<size_t> CallFreeNext(size_t index) const;
  // Whatever can be reached from `index` in one step or more.
  std::vector<bool> ReachedFrom(size_t index) const;

  std::vector<Instruction> code_;
};

// Functions by their names in the symbol table.
using Disassembly = std::map<std::string, Function>;

// Disassembles an object file or archive with objdump. Empty, after a test
// failure with the reason, if that does not work.
Disassembly Disassemble(const std::string& path);

// Whether a sanitizer or a coverage tool has put calls of its own in.
bool IsInstrumented(const Disassembly& disassembly);

}  // namespace stillpoint::testing

#endif  // STILLPOINT_TESTS_CODEGEN_DISASSEMBLY_H_
