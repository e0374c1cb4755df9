#include "runtime/os/fast_cpu_clock_choice.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/os/rseq_area.h"
#include "runtime/os/rseq_self_test.h"
#include "runtime/os/tsc.h"

namespace stillpoint {
namespace {

// What was found out about this machine; the same for every runtime of the
// process. High half: RseqFinding; low half: the multiplier. 0: not yet known.
constinit std::atomic<uint64_t> known_facts{0};

struct Facts {
  RseqFinding finding = RseqFinding::kUntried;
  uint32_t multiplier = 0;
};

Facts FindFacts() {
  const uint64_t known = known_facts.load();
  if (known != 0) {
    return {static_cast<RseqFinding>(known >> 32),
            static_cast<uint32_t>(known)};
  }
  Facts facts;
  // A base is at most `max_age` old, so a rate that is off by 1 in 10,000 is
  // good enough; the test takes about a millisecond.
  const TscSample begin = SampleTsc();
  facts.finding = TestRseq();
  facts.multiplier = TscMultiplier(begin, SampleTsc());
  if (facts.finding != RseqFinding::kNotPreempted) {
    known_facts.store(static_cast<uint64_t>(facts.finding) << 32 |
                      facts.multiplier);
  }
  return facts;
}

FastCpuClockChoice Off(const char* why) {
  FastCpuClockChoice choice;
  choice.reason =
      absl::StrCat("CPU clock: the kernel's, by clock_gettime: ", why);
  return choice;
}

}  // namespace

FastCpuClockChoice ChooseFastCpuClock(int64_t max_age_nanos) {
  if (max_age_nanos <= 0) return Off("the one without a system call is off");
#if !defined(__x86_64__)
  return Off("the one without a system call is for x86-64 only");
#endif
  if (!HasInvariantTsc()) {
    return Off("CPUID promises no invariant time stamp counter");
  }
  const Facts facts = FindFacts();
  FastCpuClockChoice choice;
  switch (facts.finding) {
    case RseqFinding::kUntried:
    case RseqFinding::kNoArea:
      return Off(
          "libc has registered no rseq area (glibc before 2.35, the tunable "
          "glibc.pthread.rseq=0, or a kernel that refuses rseq(2))");
    case RseqFinding::kNotPreempted:
      return Off(
          "the self-test could not get a thread preempted (too loaded, or "
          "sched_setaffinity(2) refused)");
    case RseqFinding::kNotCleared:
      return Off("the kernel does not empty the rseq area on preemption");
    case RseqFinding::kClearedInUser:
      choice.config.mode = FastCpuClockMode::kManagedOnly;
      break;
    case RseqFinding::kClearedAnywhere:
      choice.config.mode = FastCpuClockMode::kEverywhere;
      break;
  }
  if (facts.multiplier == 0) {
    return Off("the time stamp counter's rate could not be measured");
  }
  const double ticks_per_nano =
      static_cast<double>(uint64_t{1} << kTscShift) / facts.multiplier;
  const RseqMarks marks = SharedRseqMarks();
  choice.config.multiplier = facts.multiplier;
  choice.config.max_age_ticks = static_cast<uint32_t>(
      std::min(ticks_per_nano * static_cast<double>(max_age_nanos),
               static_cast<double>(UINT32_MAX)));
  choice.config.descriptor = marks.descriptor;
  choice.config.fork_word = marks.fork_word;
  choice.reason = absl::StrCat(
      "CPU clock: rseq and the time stamp counter (",
      static_cast<int64_t>(ticks_per_nano * 1000 + 0.5),
      " MHz), bases at most ", max_age_nanos / 1000, " us old, ",
      choice.config.mode == FastCpuClockMode::kEverywhere
          ? "in every state"
          : "in Managed only, since this kernel does not empty the rseq area "
            "when a system call blocks");
  return choice;
}

}  // namespace stillpoint
