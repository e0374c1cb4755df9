#include "runtime/green/stack_pool.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/check.h"
#include "runtime/base/sanitizer.h"
#include "runtime/green/stack.h"
#include "runtime/os/os_thread.h"
#include "runtime/os/stack_memory.h"
#include "tests/base/death.h"
#include "tests/base/sanitizers.h"
#include "tests/os/seccomp_filter.h"

#if defined(STILLPOINT_ASAN)
#include <sanitizer/lsan_interface.h>
#endif

namespace stillpoint {
namespace {

using ::testing::HasSubstr;
using testing::kAsan;
using testing::kTsan;

size_t Page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

size_t ResidentBytes(const Stack& stack) {
  std::vector<unsigned char> pages(stack.size() / Page());
  EXPECT_EQ(mincore(reinterpret_cast<void*>(stack.bounds().low), stack.size(),
                    pages.data()),
            0);
  size_t count = 0;
  for (unsigned char page : pages) count += page & 1;
  return count * Page();
}

void TouchAll(const Stack& stack) {
  for (uintptr_t at = stack.bounds().low; at < stack.bounds().high;
       at += Page()) {
    *reinterpret_cast<volatile char*>(at) = 1;
  }
}

bool IsReadable(uintptr_t address) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const bool ok = write(ends[1], reinterpret_cast<void*>(address), 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return ok;
}

Stack* MustGet(StackCache& cache, size_t size) {
  absl::StatusOr<Stack*> stack = cache.Get(size);
  EXPECT_TRUE(stack.ok()) << stack.status();
  return stack.ok() ? *stack : nullptr;
}

class StackPoolTest : public ::testing::TestWithParam<GuardPolicy> {
 protected:
  StackPool pool_{GetParam()};
};

TEST_P(StackPoolTest, EverySizeIsUsableToItsLastByteAndGuarded) {
  StackCache cache(pool_);
  for (size_t size : {size_t{0}, size_t{1}, kMinStackSize, kMinStackSize + 1,
                      size_t{50'000}, kDefaultStackSize, size_t{100'000},
                      size_t{1} << 20, kMaxStackSize - 1, kMaxStackSize}) {
    Stack* stack = MustGet(cache, size);
    ASSERT_NE(stack, nullptr);
    EXPECT_GE(stack->size(), size);
    EXPECT_LT(stack->size(), 2 * std::max(size, kMinStackSize) + Page());
    const StackBounds bounds = stack->bounds();
    EXPECT_EQ(bounds.high - bounds.low, stack->size());
    EXPECT_EQ(bounds.high % Page(), 0u);
    *reinterpret_cast<volatile char*>(bounds.low) = 1;
    *reinterpret_cast<volatile char*>(bounds.high - 1) = 1;
    for (uintptr_t at = bounds.low - kStackGuardSize; at < bounds.low;
         at += Page()) {
      EXPECT_FALSE(IsReadable(at));
      EXPECT_TRUE(stack->IsGuarding(at));
    }
    EXPECT_FALSE(IsReadable(bounds.low - 1));
    EXPECT_FALSE(stack->IsGuarding(bounds.low));
    EXPECT_TRUE(stack->IsGuarding(bounds.low - 1));
    EXPECT_FALSE(stack->IsGuarding(bounds.low - kStackGuardSize - 1));
    cache.Put(stack);
  }
}

TEST_P(StackPoolTest, NoTwoOverlap) {
  StackCache cache(pool_);
  std::vector<Stack*> stacks;
  std::vector<StackBounds> bounds;
  for (int i = 0; i < 2000; ++i) {
    stacks.push_back(MustGet(cache, kMinStackSize << (i % 4)));
    bounds.push_back(stacks.back()->bounds());
    bounds.back().low -= kStackGuardSize;
  }
  std::sort(
      bounds.begin(), bounds.end(),
      [](const StackBounds& a, const StackBounds& b) { return a.low < b.low; });
  for (size_t i = 1; i < bounds.size(); ++i) {
    EXPECT_LE(bounds[i - 1].high, bounds[i].low);
  }
  for (Stack* stack : stacks) cache.Put(stack);
}

TEST_P(StackPoolTest, LastOneBackIsNextOneOut) {
  StackCache cache(pool_);
  Stack* first = MustGet(cache, kDefaultStackSize);
  cache.Put(first);
  EXPECT_EQ(MustGet(cache, kDefaultStackSize), first);
  EXPECT_EQ(ResidentBytes(*first), 0u);  // nobody has touched it
  cache.Put(first);
}

TEST_P(StackPoolTest, WhatIsPutBackBeyondTheBoundBecomesCold) {
  constexpr size_t kSize = size_t{1} << 20;
  constexpr int kCount = 200;
  std::vector<Stack*> stacks;
  {
    StackCache cache(pool_);
    for (int i = 0; i < kCount; ++i) {
      stacks.push_back(MustGet(cache, kSize));
      TouchAll(*stacks.back());
    }
    for (Stack* stack : stacks) cache.Put(stack);
  }
  const StackPool::Stats stats = pool_.stats();
  EXPECT_EQ(stats.out, 0u);
  EXPECT_EQ(stats.warm + stats.cold, stats.made);
  EXPECT_GE(stats.made, size_t{kCount});
  EXPECT_LE(stats.warm, 64u);
  EXPECT_GT(stats.warm, 0u);
  size_t resident = 0;
  for (Stack* stack : stacks) resident += ResidentBytes(*stack);
  EXPECT_LE(resident, stats.warm * kSize);
  EXPECT_GT(resident, 0u);

  // All of them serve again, guards and all.
  StackCache cache(pool_);
  for (int i = 0; i < kCount; ++i) {
    Stack* stack = MustGet(cache, kSize);
    TouchAll(*stack);
    EXPECT_FALSE(IsReadable(stack->bounds().low - 1));
    EXPECT_FALSE(IsReadable(stack->bounds().low - kStackGuardSize));
  }
  EXPECT_EQ(pool_.stats().made, stats.made);
  for (Stack* stack : stacks) cache.Put(stack);
}

TEST_P(StackPoolTest, TrimGivesBackAllIdlePages) {
  std::vector<Stack*> stacks;
  StackCache cache(pool_);
  for (int i = 0; i < 100; ++i) {
    stacks.push_back(MustGet(cache, kDefaultStackSize));
    TouchAll(*stacks.back());
  }
  Stack* in_use = stacks.back();
  stacks.pop_back();
  for (Stack* stack : stacks) cache.Put(stack);
  cache.Flush();
  EXPECT_GE(pool_.Trim(), stacks.size());
  EXPECT_EQ(pool_.stats().warm, 0u);
  for (Stack* stack : stacks) EXPECT_EQ(ResidentBytes(*stack), 0u);
  EXPECT_EQ(ResidentBytes(*in_use), in_use->size());
  EXPECT_EQ(pool_.Trim(), 0u);
  cache.Put(in_use);
}

TEST_P(StackPoolTest, CarriersExchangeStacks) {
  constexpr int kThreads = 4;
  constexpr int kRounds = testing::Rounds(20'000);
  std::atomic<Stack*> mailbox[8] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      StackCache cache(pool_);
      for (int i = 0; i < kRounds; ++i) {
        // What one takes another puts back, so caches run empty and full.
        Stack* stack = MustGet(cache, kMinStackSize << (i % 3));
        auto* word =
            reinterpret_cast<uintptr_t*>(stack->bounds().high - sizeof(int*));
        *word = static_cast<uintptr_t>(t);
        Stack* old = mailbox[(i * 7 + t) % 8].exchange(stack);
        if (old == nullptr) continue;
        ASSERT_LT(
            *reinterpret_cast<uintptr_t*>(old->bounds().high - sizeof(int*)),
            uintptr_t{kThreads});
        cache.Put(old);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  StackCache cache(pool_);
  for (std::atomic<Stack*>& slot : mailbox) {
    if (slot.load() != nullptr) cache.Put(slot.load());
  }
  cache.Flush();
  EXPECT_EQ(pool_.stats().out, 0u);
}

INSTANTIATE_TEST_SUITE_P(Policies, StackPoolTest,
                         ::testing::Values(GuardPolicy::kAuto,
                                           GuardPolicy::kProtect),
                         [](const ::testing::TestParamInfo<GuardPolicy>& info) {
                           return info.param == GuardPolicy::kAuto ? "Auto"
                                                                   : "Protect";
                         });

TEST(StackPoolErrorTest, TooLargeIsRefused) {
  StackPool pool;
  StackCache cache(pool);
  const absl::Status status = cache.Get(kMaxStackSize + 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cache.Get(SIZE_MAX).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.stats().made, 0u);
}

// Fault injection at each call: an error with its remedy, nothing is lost, and
// the next try works (incident B15).
struct Refusal {
  long call;
  int error;
  const char* names;
};

TEST(StackPoolErrorTest, RecoversFromEveryRefusal) {
  for (const Refusal& refusal :
       {Refusal{SYS_mmap, ENOMEM, "vm.max_map_count"},
        Refusal{SYS_mprotect, ENOMEM, "vm.max_map_count"}}) {
    // A sanitizer's own allocator dies of it.
    if (refusal.call == SYS_mmap && (kAsan || kTsan)) continue;
    StackPool pool(GuardPolicy::kProtect);
    StackCache cache(pool);
    absl::Status status;
    bool denied = testing::RunDenied({{refusal.call, refusal.error}}, [&] {
      for (int i = 0; i < 3; ++i) {
        status = cache.Get(size_t{1} << 20).status();
      }
    });
    if (!denied) GTEST_SKIP() << "no seccomp filters";
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.names));
    EXPECT_EQ(pool.stats().out, 0u);
    Stack* stack = MustGet(cache, size_t{1} << 20);
    ASSERT_NE(stack, nullptr);
    EXPECT_FALSE(IsReadable(stack->bounds().low - 1));
    cache.Put(stack);
    // Three failures made no more than one success needs.
    EXPECT_LE(pool.stats().made, 3u);
  }
}

TEST(StackPoolErrorTest, GoesOnWherePagesCannotBeGivenBack) {
  StackPool pool;
  StackCache cache(pool);
  if (!testing::RunDenied({{SYS_madvise, EPERM}}, [&] {
        Stack* stack = MustGet(cache, kDefaultStackSize);
        cache.Put(stack);
        cache.Flush();
        EXPECT_GT(pool.Trim(), 0u);
        stack = MustGet(cache, kDefaultStackSize);
        EXPECT_FALSE(IsReadable(stack->bounds().low - 1));
        cache.Put(stack);
      })) {
    GTEST_SKIP() << "no seccomp filters";
  }
}

size_t AddressSpaceInUse() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  file >> pages;
  return pages * Page();
}

// As many stacks as fit, in slabs that get smaller; then an error; and after
// some were put back, some more.
void ExhaustAddressSpace() {
  const rlim_t limit = AddressSpaceInUse() + (size_t{64} << 20);
  const rlimit address_space = {.rlim_cur = limit, .rlim_max = limit};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &address_space), 0);
  StackPool pool;
  StackCache cache(pool);
  std::vector<Stack*> stacks;
  absl::Status status;
  while (status.ok()) {
    const absl::StatusOr<Stack*> stack = cache.Get(size_t{1} << 20);
    status = stack.status();
    if (stack.ok()) stacks.push_back(*stack);
  }
  ASSERT_GT(stacks.size(), 40u);
  ASSERT_LT(stacks.size(), 64u);
  ASSERT_THAT(std::string(status.message()),
              HasSubstr("(ulimit -v, in bytes) = " + std::to_string(limit)));
  ASSERT_FALSE(cache.Get(size_t{1} << 20).ok());
  cache.Put(stacks.back());
  ASSERT_EQ(MustGet(cache, size_t{1} << 20), stacks.back());
  for (Stack* stack : stacks) cache.Put(stack);
  std::fprintf(stderr, "exhausted\n");
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(StackPoolErrorTest, UsesTheAddressSpaceToItsEnd) {
  if (kAsan || kTsan) GTEST_SKIP() << "needs the address space for itself";
  EXPECT_EXIT(ExhaustAddressSpace(), ::testing::ExitedWithCode(0), "exhausted");
}

size_t MaxMapCount() {
  std::ifstream file("/proc/sys/vm/max_map_count");
  size_t count = 0;
  file >> count;
  return count;
}

// Incident I6: a defined error where guards are mappings, and none where they
// are not.
TEST(StackPoolErrorTest, MappingsRunOutWithAnError) {
  const size_t limit = MaxMapCount();
  if (limit > 100'000) GTEST_SKIP() << "vm.max_map_count is large";
  if (kAsan || kTsan) GTEST_SKIP() << "their own mappings run out first";
  StackPool pool(GuardPolicy::kProtect);
  StackCache cache(pool);
  std::vector<Stack*> stacks;
  absl::Status status;
  while (status.ok() && stacks.size() < limit) {
    const absl::StatusOr<Stack*> stack = cache.Get(kMinStackSize);
    status = stack.status();
    if (stack.ok()) stacks.push_back(*stack);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("vm.max_map_count = " + std::to_string(limit)));
  EXPECT_GT(stacks.size(), limit / 3);
  for (Stack* stack : stacks) cache.Put(stack);
}

TEST(StackPoolErrorTest, MarkersGoBeyondTheMapCount) {
  {
    StackPool probe;
    StackCache cache(probe);
    cache.Put(MustGet(cache, kMinStackSize));
    if (probe.stats().guards_are_mappings) {
      GTEST_SKIP() << "this kernel has no markers";
    }
  }
  StackPool pool;
  StackCache cache(pool);
  std::vector<Stack*> stacks;
  const size_t count = testing::Rounds(
      static_cast<int>(std::min<size_t>(MaxMapCount() + 1000, 100'000)));
  for (size_t i = 0; i < count; ++i) {
    stacks.push_back(MustGet(cache, kMinStackSize));
    ASSERT_NE(stacks.back(), nullptr);
  }
  EXPECT_FALSE(IsReadable(stacks.back()->bounds().low - 1));
  for (Stack* stack : stacks) cache.Put(stack);
}

#if defined(STILLPOINT_ASAN)
[[gnu::noinline]] void ReferTo(Stack* stack) {
  *reinterpret_cast<char**>(stack->bounds().high - sizeof(char*)) =
      new char[123];
}
[[gnu::noinline]] void OverwriteFrames() {
  volatile char bytes[4096];
  for (volatile char& byte : bytes) byte = 0;
}

TEST(StackPoolLeakTest, WhatAStackRefersToIsNoLeak) {
  StackPool pool;
  StackCache cache(pool);
  Stack* stack = MustGet(cache, kDefaultStackSize);
  ReferTo(stack);
  OverwriteFrames();
  EXPECT_EQ(__lsan_do_recoverable_leak_check(), 0);
  delete[] * reinterpret_cast<char**>(stack->bounds().high - sizeof(char*));
  cache.Put(stack);
}
#endif

TEST(StackPoolDeathTest, DestroyedWithStacksInUse) {
  EXPECT_DIES_SAYING(
      {
        StackPool pool;
        StackCache cache(pool);
        MustGet(cache, kDefaultStackSize);
        cache.Flush();
        pool.~StackPool();
      },
      "stacks are in use");
}

TEST(StackPoolDeathTest, PutBackTwice) {
  if (!kDebugChecks) GTEST_SKIP() << "no debug checks in this build";
  EXPECT_DIES_SAYING(
      {
        StackPool pool;
        StackCache cache(pool);
        Stack* stack = MustGet(cache, kDefaultStackSize);
        cache.Put(stack);
        cache.Put(stack);
      },
      "given back twice");
}

}  // namespace
}  // namespace stillpoint
