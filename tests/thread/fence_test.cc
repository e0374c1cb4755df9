#include "runtime/thread/fence.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/os/membarrier.h"
#include "runtime/os/os_thread.h"
#include "tests/os/seccomp_filter.h"

namespace stillpoint {
namespace {

using ::testing::HasSubstr;
using testing::RunDenied;
using testing::RunWithoutThreadCreation;
using ::testing::StartsWith;

// ChooseFence on a thread for which the kernel refuses membarrier.
FenceChoice ChooseWithoutMembarrier(FencePolicy policy) {
  FenceChoice choice;
  EXPECT_TRUE(RunDenied({{SYS_membarrier, EPERM}}, [&] {
    absl::StatusOr<FenceChoice> chosen = ChooseFence(policy);
    if (chosen.ok()) choice = *chosen;
  }));
  return choice;
}

// Without membarrier the mutators pay on both sides, whatever was asked for.
void ExpectFencesOnBothSides(const FenceChoice& choice) {
  EXPECT_TRUE(choice.mode.enter_fenced);
  EXPECT_TRUE(choice.mode.leave_fenced);
  EXPECT_THAT(choice.reason, StartsWith("fence = full: "));
}

TEST(FenceTest, FullFencesLeavingOnlyWithoutMembarrier) {
  const absl::StatusOr<FenceChoice> choice = ChooseFence(FencePolicy::kFull);
  ASSERT_TRUE(choice.ok());
  EXPECT_TRUE(choice->mode.enter_fenced);
  EXPECT_EQ(choice->mode.leave_fenced, !RegisterMembarrier());
  EXPECT_EQ(choice->reason, "fence = full: asked for");
}

TEST(FenceTest, MembarrierFencesNoMutator) {
  if (!RegisterMembarrier()) GTEST_SKIP() << "the kernel has no membarrier";
  const absl::StatusOr<FenceChoice> choice =
      ChooseFence(FencePolicy::kMembarrier);
  ASSERT_TRUE(choice.ok());
  EXPECT_FALSE(choice->mode.enter_fenced);
  EXPECT_FALSE(choice->mode.leave_fenced);
  EXPECT_EQ(choice->reason, "fence = membarrier: asked for");
}

TEST(FenceTest, AutoSaysWhatItChoseAndWhy) {
  const absl::StatusOr<FenceChoice> choice = ChooseFence(FencePolicy::kAuto);
  ASSERT_TRUE(choice.ok());
  EXPECT_THAT(choice->reason,
              StartsWith(choice->mode.enter_fenced ? "fence = full: "
                                                   : "fence = membarrier: "));
  EXPECT_EQ(choice->reason.find('\n'), std::string::npos);
  // Fences on leaving are for kernels without membarrier only.
  EXPECT_EQ(choice->mode.leave_fenced, !RegisterMembarrier());
}

TEST(FenceTest, AutoFallsBackWhereMembarrierIsRefused) {
  const FenceChoice choice = ChooseWithoutMembarrier(FencePolicy::kAuto);
  ExpectFencesOnBothSides(choice);
  EXPECT_THAT(choice.reason, HasSubstr("the kernel refuses membarrier"));
}

TEST(FenceTest, FullNeedsNoMembarrier) {
  ExpectFencesOnBothSides(ChooseWithoutMembarrier(FencePolicy::kFull));
}

TEST(FenceTest, MembarrierThatIsRefusedIsAnErrorWithTheRemedy) {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;
  ASSERT_TRUE(RunDenied({{SYS_membarrier, ENOSYS}}, [&] {
    const absl::Status status = ChooseFence(FencePolicy::kMembarrier).status();
    code = status.code();
    message = std::string(status.message());
  }));
  EXPECT_EQ(code, absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(message, HasSubstr("kernel refuses"));
  EXPECT_THAT(message, HasSubstr("fence = auto or fence = full"));
}

TEST(FenceTest, AutoTakesMembarrierOnOneProcessor) {
  if (!RegisterMembarrier()) GTEST_SKIP() << "the kernel has no membarrier";
  std::thread([] {
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    int first = 0;
    while (!CPU_ISSET(first, &allowed)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    const absl::StatusOr<FenceChoice> choice = ChooseFence(FencePolicy::kAuto);
    ASSERT_TRUE(choice.ok());
    EXPECT_FALSE(choice->mode.enter_fenced);
    EXPECT_FALSE(choice->mode.leave_fenced);
    EXPECT_THAT(choice->reason, HasSubstr("one processor"));
  }).join();
}

// Where no peer can be started nothing is known about the cost: full, but
// leaving is still paid for by the stopper.
TEST(FenceTest, AutoFallsBackWhereItCannotMeasure) {
  if (!RegisterMembarrier()) GTEST_SKIP() << "the kernel has no membarrier";
  if (AllowedCpuCount() == 1) GTEST_SKIP() << "one processor: no measurement";
  FenceChoice choice;
  ASSERT_TRUE(RunWithoutThreadCreation([&] {
    absl::StatusOr<FenceChoice> chosen = ChooseFence(FencePolicy::kAuto);
    if (chosen.ok()) choice = *chosen;
  }));
  EXPECT_TRUE(choice.mode.enter_fenced);
  EXPECT_FALSE(choice.mode.leave_fenced);
  EXPECT_THAT(choice.reason, HasSubstr("could not be measured"));
}

TEST(FenceTest, StoreThenFenceStores) {
  std::atomic<int> word{1};
  StoreThenFence(word, 2);
  EXPECT_EQ(word.load(), 2);
}

}  // namespace
}  // namespace stillpoint
