#include "runtime/os/stack_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/os/seccomp_filter.h"

namespace stillpoint {
namespace {

using ::testing::HasSubstr;

size_t Page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

size_t CountMappings() {
  std::ifstream file("/proc/self/maps");
  size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

// A write that a guard refuses, as write(2) sees it: no signal.
bool IsWritable(uintptr_t address) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  char byte = 1;
  bool ok = write(ends[1], &byte, 1) == 1 &&
            read(ends[0], reinterpret_cast<void*>(address), 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return ok;
}

class StackMemoryTest : public ::testing::TestWithParam<GuardPolicy> {};

TEST_P(StackMemoryTest, GuardsRefuseAndTheRestDoesNot) {
  StackMemory memory(GetParam());
  const size_t page = Page();
  const size_t size = 32 * page;
  const absl::StatusOr<uintptr_t> low = memory.Reserve(size);
  ASSERT_TRUE(low.ok()) << low.status();
  ASSERT_EQ(memory.Guard(*low + 8 * page, 4 * page), absl::OkStatus());
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(IsWritable(*low + i * page), i < 8 || i >= 12) << i;
  }
  StackMemory::Release(*low, size);
}

TEST_P(StackMemoryTest, WhatIsGivenBackReadsAsZeroAndGuardsStay) {
  StackMemory memory(GetParam());
  const size_t page = Page();
  const absl::StatusOr<uintptr_t> low = memory.Reserve(8 * page);
  ASSERT_TRUE(low.ok()) << low.status();
  ASSERT_EQ(memory.Guard(*low + 2 * page, 2 * page), absl::OkStatus());
  auto* bytes = reinterpret_cast<volatile unsigned char*>(*low);
  bytes[0] = 1;
  bytes[4 * page] = 1;
  EXPECT_TRUE(StackMemory::GiveBack(*low, 8 * page));
  unsigned char resident[8];
  ASSERT_EQ(mincore(reinterpret_cast<void*>(*low), 8 * page, resident), 0);
  EXPECT_EQ(resident[0] & 1, 0);
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[4 * page], 0);
  EXPECT_FALSE(IsWritable(*low + 2 * page));
  EXPECT_FALSE(IsWritable(*low + 4 * page - 1));
  StackMemory::Release(*low, 8 * page);
}

TEST_P(StackMemoryTest, TouchingOnePageTakesOnePage) {
  StackMemory memory(GetParam());
  const size_t size = size_t{8} << 20;
  const absl::StatusOr<uintptr_t> low = memory.Reserve(size);
  ASSERT_TRUE(low.ok()) << low.status();
  reinterpret_cast<volatile char*>(*low)[size / 2] = 1;
  std::vector<unsigned char> resident(size / Page());
  ASSERT_EQ(mincore(reinterpret_cast<void*>(*low), size, resident.data()), 0);
  size_t pages = 0;
  for (unsigned char state : resident) pages += state & 1;
  EXPECT_EQ(pages, 1u);
  StackMemory::Release(*low, size);
}

INSTANTIATE_TEST_SUITE_P(Policies, StackMemoryTest,
                         ::testing::Values(GuardPolicy::kAuto,
                                           GuardPolicy::kProtect),
                         [](const ::testing::TestParamInfo<GuardPolicy>& info) {
                           return info.param == GuardPolicy::kAuto ? "Auto"
                                                                   : "Protect";
                         });

// Incident I6.
TEST(StackMemoryMarkersTest, TakeNoMappings) {
  StackMemory memory(GuardPolicy::kAuto);
  constexpr size_t kGuards = 1000;
  const size_t size = kGuards * 2 * Page();
  const absl::StatusOr<uintptr_t> low = memory.Reserve(size);
  ASSERT_TRUE(low.ok()) << low.status();
  const size_t before = CountMappings();
  for (size_t i = 0; i < kGuards; ++i) {
    ASSERT_EQ(memory.Guard(*low + 2 * i * Page(), Page()), absl::OkStatus());
  }
  if (memory.protects()) {
    EXPECT_GE(CountMappings(), before + kGuards);
  } else {
    EXPECT_LT(CountMappings(), before + 20);
  }
  StackMemory::Release(*low, size);
}

TEST(StackMemoryMarkersTest, FallBackWhereTheKernelRefuses) {
  for (int error : {EINVAL, EPERM, ENOSYS}) {
    StackMemory memory(GuardPolicy::kAuto);
    const absl::StatusOr<uintptr_t> low = memory.Reserve(4 * Page());
    ASSERT_TRUE(low.ok());
    absl::Status guarded = absl::UnknownError("not run");
    if (!testing::RunDenied({{SYS_madvise, error}},
                            [&] { guarded = memory.Guard(*low, Page()); })) {
      GTEST_SKIP() << "no seccomp filters";
    }
    EXPECT_EQ(guarded, absl::OkStatus());
    EXPECT_TRUE(memory.protects());
    EXPECT_FALSE(IsWritable(*low));
    EXPECT_TRUE(IsWritable(*low + Page()));
    StackMemory::Release(*low, 4 * Page());
  }
}

TEST(StackMemoryErrorTest, NamesTheMapCountWhenProtectingFails) {
  StackMemory memory(GuardPolicy::kProtect);
  const absl::StatusOr<uintptr_t> low = memory.Reserve(4 * Page());
  ASSERT_TRUE(low.ok());
  absl::Status guarded;
  if (!testing::RunDenied({{SYS_mprotect, ENOMEM}},
                          [&] { guarded = memory.Guard(*low, Page()); })) {
    GTEST_SKIP() << "no seccomp filters";
  }
  EXPECT_EQ(guarded.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(guarded.message()), HasSubstr("vm.max_map_count = "));
  StackMemory::Release(*low, 4 * Page());
}

TEST(StackMemoryErrorTest, NamesTheLimitsWhenThereIsNoAddressSpace) {
  StackMemory memory(GuardPolicy::kAuto);
  const absl::StatusOr<uintptr_t> low = memory.Reserve(size_t{1} << 62);
  ASSERT_FALSE(low.ok());
  EXPECT_EQ(low.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string message(low.status().message());
  EXPECT_THAT(message, HasSubstr("ulimit -v"));
  EXPECT_THAT(message, HasSubstr("vm.max_map_count = "));
  EXPECT_THAT(message, HasSubstr("vm.overcommit_memory = "));
}

// Memory of page tables may run out, too: that is no reason to go for mappings.
TEST(StackMemoryErrorTest, NoMemoryForMarkersIsAnError) {
  StackMemory memory(GuardPolicy::kAuto);
  const absl::StatusOr<uintptr_t> low = memory.Reserve(4 * Page());
  ASSERT_TRUE(low.ok());
  absl::Status guarded;
  if (!testing::RunDenied({{SYS_madvise, ENOMEM}},
                          [&] { guarded = memory.Guard(*low, Page()); })) {
    GTEST_SKIP() << "no seccomp filters";
  }
  EXPECT_EQ(guarded.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(memory.protects());
  StackMemory::Release(*low, 4 * Page());
}

TEST(StackMemoryErrorTest, GivingBackMayBeRefused) {
  StackMemory memory(GuardPolicy::kAuto);
  const absl::StatusOr<uintptr_t> low = memory.Reserve(Page());
  ASSERT_TRUE(low.ok());
  bool given_back = true;
  if (!testing::RunDenied({{SYS_madvise, EPERM}}, [&] {
        given_back = StackMemory::GiveBack(*low, Page());
      })) {
    GTEST_SKIP() << "no seccomp filters";
  }
  EXPECT_FALSE(given_back);
  StackMemory::Release(*low, Page());
}

}  // namespace
}  // namespace stillpoint
