// What optimised builds make of the poll and the transitions: the promises of
// "one load and one branch" and "no call on the fast path", read in the
// disassembly of probes.cc at -O2 and -O3.

#include <algorithm>
#include <cstddef>
#include <regex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/thread/thread.h"
#include "tests/codegen/disassembly.h"

namespace stillpoint {
namespace {

using testing::Disassembly;
using ::testing::Each;
using testing::Function;
using ::testing::HasSubstr;
using testing::Instruction;
using ::testing::IsEmpty;
using ::testing::Not;

// Given by the BUILD file, relative to the working folder of a test.
std::vector<std::string>& Archives() {
  static auto* archives = new std::vector<std::string>;
  return *archives;
}

size_t Count(const Function& function, const std::vector<size_t>& indices,
             bool (*wanted)(const Instruction&)) {
  return static_cast<size_t>(
      std::count_if(indices.begin(), indices.end(),
                    [&](size_t i) { return wanted(function[i]); }));
}

bool IsStep(const Instruction& at) { return at.mnemonic == "clc"; }
bool IsConditionalJump(const Instruction& at) { return at.IsConditionalJump(); }
bool IsPadding(const Instruction& at) {
  return at.mnemonic == "nop" ||
         (at.mnemonic == "xchg" && at.operands == "ax,ax");
}
bool TouchesMemory(const Instruction& at) {
  return at.operands.find('[') != std::string::npos && at.mnemonic != "lea" &&
         !IsPadding(at);
}
bool IsFencedStore(const Instruction& at) {
  return at.mnemonic == "xchg" && TouchesMemory(at);
}
bool IsPlainStoreOfState(const Instruction& at) {
  static const std::regex kStore(R"(DWORD PTR \[\w+(\+0x0)?\],0x\d)");
  return at.mnemonic == "mov" && std::regex_match(at.operands, kStore);
}

// The base of the thread's CPU clock is forgotten: a plain store, and the only
// one of 8 bytes of zeros.
bool IsDropOfBase(const Instruction& at) {
  static const std::regex kStore(R"(QWORD PTR \[\w+(\+0x[0-9a-f]+)?\],0x0)");
  return at.mnemonic == "mov" && std::regex_match(at.operands, kStore);
}

// The register that holds `thread` + kPollWordOffset, if the compiler computes
// that address outside the loop; else empty.
std::string PollWordRegister(const Function& function,
                             const std::vector<size_t>& loop) {
  static const std::regex kAddress(R"((\w+),\[\w+\+0x(\d+)\])");
  for (size_t i = 0; i < loop.front(); ++i) {
    std::smatch match;
    if (function[i].mnemonic == "lea" &&
        std::regex_match(function[i].operands, match, kAddress) &&
        std::stoul(match[2]) == Thread::kPollWordOffset) {
      return match[1];
    }
  }
  return {};
}

// How many instructions of the loop look at the poll word: `cmp [word],0`, or
// `mov reg,[word]` followed by `test reg,reg`; each with a conditional jump
// right behind. `used` counts the instructions that this takes.
size_t CountPolls(const Function& function, const std::vector<size_t>& loop,
                  size_t& used) {
  const std::string word =
      R"(DWORD PTR \[(\w+\+0x)" + std::to_string(Thread::kPollWordOffset) +
      (PollWordRegister(function, loop).empty()
           ? ""
           : "|" + PollWordRegister(function, loop) + R"((\+0x0)?)") +
      R"()\])";
  const std::regex compare(word + ",0x0");
  const std::regex load("(\\w+)," + word);
  size_t polls = 0;
  used = 0;
  for (size_t i : loop) {
    const std::vector<Instruction>& code = function.instructions();
    std::smatch match;
    size_t length = 0;
    if (code[i].mnemonic == "cmp" &&
        std::regex_match(code[i].operands, compare)) {
      length = 2;
    } else if (code[i].mnemonic == "mov" &&
               std::regex_match(code[i].operands, match, load) &&
               code[i + 1].mnemonic == "test" &&
               code[i + 1].operands == match[1].str() + "," + match[1].str()) {
      length = 3;
    }
    if (length != 0 && code[i + length - 1].IsConditionalJump()) {
      ++polls;
      used += length;
    }
  }
  return polls;
}

class CodegenTest : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
#if !defined(__x86_64__)
    GTEST_SKIP() << "reads x86-64 code only";
#endif
    ASSERT_LT(GetParam(), Archives().size()) << "run by bazel test";
    disassembly_ = testing::Disassemble(Archives()[GetParam()]);
    ASSERT_FALSE(disassembly_.empty());
    if (testing::IsInstrumented(disassembly_)) {
      GTEST_SKIP() << "instrumented code has calls everywhere";
    }
  }

  const Function& Probe(const std::string& name) {
    EXPECT_EQ(disassembly_.count(name), 1u) << name;
    return disassembly_[name];
  }

  // One load, one compare with 0 and one branch more than the same loop without
  // the poll, and no call.
  void ExpectPolls(const std::string& name, size_t polls_a_turn) {
    const Function& bare = Probe("ProbeBareLoop");
    const Function& probe = Probe(name);
    const std::vector<size_t> bare_loop = bare.CallFreeLoop();
    const std::vector<size_t> loop = probe.CallFreeLoop();
    ASSERT_THAT(bare_loop, Not(IsEmpty())) << bare.Text();
    ASSERT_THAT(loop, Not(IsEmpty())) << probe.Text();
    SCOPED_TRACE(name + ":\n" + probe.Text() + "its loop:\n" +
                 probe.Text(loop));

    size_t used = 0;
    const size_t polls = CountPolls(probe, loop, used);
    const size_t steps = Count(probe, loop, IsStep);
    EXPECT_EQ(polls, steps) << "one poll a step";
    EXPECT_EQ(steps % polls_a_turn, 0u);
    EXPECT_EQ(Count(probe, loop, TouchesMemory), polls);

    // One step a turn in the bare loop, unless a compiler unrolls it.
    ASSERT_EQ(Count(bare, bare_loop, IsStep), 1u) << bare.Text();
    const size_t bare_rest =
        bare_loop.size() - 1 - Count(bare, bare_loop, IsPadding);
    const size_t turns = steps / polls_a_turn;
    EXPECT_LE(loop.size() - Count(probe, loop, IsPadding),
              steps + used + turns * bare_rest);
    EXPECT_EQ(Count(probe, loop, IsConditionalJump),
              polls + turns * Count(bare, bare_loop, IsConditionalJump));
    EXPECT_THAT(probe.Callees(), Each(HasSubstr("PollSlow")));
  }

  // Both ways of storing the state, with the fence and without, lie on a way
  // through the function that calls nothing; and what is called elsewhere is
  // out of line.
  void ExpectTransitions(const std::string& name, size_t round_trips = 1) {
    const Function& probe = Probe(name);
    const std::vector<size_t> fast = probe.CallFreeWays();
    SCOPED_TRACE(name + ":\n" + probe.Text());
    ASSERT_THAT(fast, Not(IsEmpty())) << "a call on every way through";
    EXPECT_EQ(Count(probe, fast, IsFencedStore), 2 * round_trips)
        << probe.Text(fast);
    EXPECT_EQ(Count(probe, fast, IsPlainStoreOfState), 2 * round_trips)
        << probe.Text(fast);
    EXPECT_EQ(Count(probe, fast, IsDropOfBase), round_trips)
        << probe.Text(fast);
    EXPECT_GE(Count(probe, fast, IsStep), 1u) << probe.Text(fast);
    // (With -fstack-protector, which Bazel sets, clang guards frames with an
    // array, as in ManagedScope; what it calls is the end of the process.)
    static const std::regex kOutOfLine(
        ".*(WakeWaiterOf|EnterManagedSlow|DieHoldingLock|DieUnattached|"
        "terminate|__stack_chk_fail).*");
    for (const std::string& callee : probe.Callees()) {
      EXPECT_TRUE(std::regex_match(callee, kOutOfLine)) << callee;
    }
  }

 private:
  Disassembly disassembly_;
};

TEST_P(CodegenTest, PollIsOneLoadAndOneBranch) {
  ExpectPolls("ProbePollLoop", 1);
}

TEST_P(CodegenTest, TwoPollsLookTwice) { ExpectPolls("ProbeTwoPollLoop", 2); }

TEST_P(CodegenTest, LoopOfPollsAloneGoesOnLooking) {
  const Function& probe = Probe("ProbePollForever");
  const std::vector<size_t> loop = probe.CallFreeLoop();
  ASSERT_THAT(loop, Not(IsEmpty())) << probe.Text();
  size_t used = 0;
  EXPECT_EQ(CountPolls(probe, loop, used), 1u) << probe.Text();
  EXPECT_EQ(used, loop.size()) << probe.Text(loop);
}

TEST_P(CodegenTest, NativeScopeCallsNothing) {
  ExpectTransitions("ProbeNativeScope");
  ExpectTransitions("ProbeCurrentNativeScope");
}

TEST_P(CodegenTest, ManagedScopeCallsNothing) {
  ExpectTransitions("ProbeManagedScope");
  ExpectTransitions("ProbeCurrentManagedScope");
}

TEST_P(CodegenTest, ScopesCallNothingWhereverTheyAre) {
  ExpectTransitions("ProbeManyNativeScopes", 16);
  ExpectTransitions("ProbeColdNativeScope");
  ExpectTransitions("ProbeColdManagedScope");
}

INSTANTIATE_TEST_SUITE_P(Levels, CodegenTest, ::testing::Values(0, 1),
                         [](const ::testing::TestParamInfo<size_t>& info) {
                           return info.param == 0 ? "O2" : "O3";
                         });

}  // namespace
}  // namespace stillpoint

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) stillpoint::Archives().push_back(argv[i]);
  return RUN_ALL_TESTS();
}
