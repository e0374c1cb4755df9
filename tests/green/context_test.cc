#include "runtime/green/context.h"

#include <execinfo.h>
#include <fenv.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/base/check.h"
#include "runtime/os/os_thread.h"
#include "tests/base/death.h"
#include "tests/base/sanitizers.h"
#include "tests/green/fiber.h"

namespace stillpoint {
namespace {

using testing::Fiber;
using testing::kAsan;
using testing::kTsan;

TEST(ContextTest, IsSupportedHere) {
  EXPECT_EQ(CheckContextSupport(), absl::OkStatus());
}

TEST(ContextTest, RunsOnItsStackWithItsArgument) {
  Context thread;
  thread.AdoptThread();
  uintptr_t address = 0;
  Fiber fiber(thread, [&](Fiber&) {
    address = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  });
  fiber.Resume();
  EXPECT_TRUE(fiber.done());
  EXPECT_GE(address, fiber.stack().low);
  EXPECT_LT(address, fiber.stack().high);
}

// Every register that a call must preserve holds something across the switch,
// on both sides, with more values alive than there are registers.
[[gnu::noinline]] uint64_t MixAcrossSwitches(uint64_t seed, int rounds,
                                             void (*leave)(void*), void* to) {
  uint64_t v[20];
  double d[12];
  for (int i = 0; i < 20; ++i) v[i] = seed * (i + 1);
  for (int i = 0; i < 12; ++i) d[i] = static_cast<double>(seed % 1000) + i;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 20; ++i) v[i] = v[i] * 0x9e3779b97f4a7c15 + i;
    for (int i = 0; i < 12; ++i) d[i] = d[i] * 1.0009765625;
    leave(to);
  }
  uint64_t sum = 0;
  for (uint64_t value : v) sum = sum * 31 + value;
  for (double value : d) sum += static_cast<uint64_t>(value * 1024);
  return sum;
}

TEST(ContextTest, RegistersSurvive) {
  Context thread;
  thread.AdoptThread();
  constexpr int kRounds = 100;
  std::vector<uint64_t> results(3);
  std::vector<std::unique_ptr<Fiber>> fibers;
  for (int i = 0; i < 3; ++i) {
    fibers.push_back(std::make_unique<Fiber>(thread, [&results, i](Fiber& f) {
      results[i] = MixAcrossSwitches(
          i + 17, kRounds, [](void* g) { static_cast<Fiber*>(g)->Leave(); },
          &f);
    }));
  }
  for (int round = 0; round <= kRounds; ++round) {
    for (auto& fiber : fibers) fiber->Resume();
  }
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(fibers[i]->done());
    EXPECT_EQ(results[i], MixAcrossSwitches(
                              i + 17, kRounds, [](void*) {}, nullptr));
  }
}

// The switch itself inlined into a frame whose variables are over-aligned and
// of variable size: the frame is then addressed by two base registers.
[[gnu::noinline]] uintptr_t OddFrame(Context& from, Context& to, size_t size) {
  alignas(64) volatile unsigned char aligned[64];
  auto* varying = static_cast<volatile unsigned char*>(__builtin_alloca(size));
  for (size_t i = 0; i < 64; ++i) aligned[i] = static_cast<unsigned char>(i);
  for (size_t i = 0; i < size; ++i) {
    varying[i] = static_cast<unsigned char>(3 * i);
  }
  Context::Switch(from, to);
  uintptr_t wrong = reinterpret_cast<uintptr_t>(&aligned) % 64;
  for (size_t i = 0; i < 64; ++i) {
    wrong += aligned[i] != static_cast<unsigned char>(i);
  }
  for (size_t i = 0; i < size; ++i) {
    wrong += varying[i] != static_cast<unsigned char>(3 * i);
  }
  return wrong;
}

TEST(ContextTest, OddFramesSurvive) {
  Context thread;
  thread.AdoptThread();
  uintptr_t wrong = 1;
  Fiber fiber(thread,
              [&](Fiber& f) { wrong = OddFrame(f.context(), thread, 200); });
  fiber.Resume();
  EXPECT_EQ(OddFrame(thread, fiber.context(), 333), 0u);
  EXPECT_TRUE(fiber.done());
  EXPECT_EQ(wrong, 0u);
}

#if defined(__x86_64__)
TEST(ContextTest, X87StackSurvives) {
  Context thread;
  thread.AdoptThread();
  Fiber fiber(thread, [&](Fiber& f) {
    for (int i = 0; i < 2; ++i) {
      volatile long double three = 3;
      asm volatile("fninit");
      three = three / 7;
      f.Leave();
    }
  });
  volatile long double seven = 7;
  const long double x = seven / 11;
  const long double y = x * seven + 1;
  Context::Switch(thread, fiber.context());
  EXPECT_EQ(x, seven / 11);
  EXPECT_EQ(y, x * seven + 1);
  fiber.Resume();
  fiber.Resume();
}
#endif

TEST(ContextTest, RoundingModeBelongsToTheContext) {
  Context thread;
  thread.AdoptThread();
  const int before = fegetround();
  int at_start = -1;
  int kept = -1;
  fesetround(FE_UPWARD);
  Fiber fiber(thread, [&](Fiber& f) {
    at_start = fegetround();
    fesetround(FE_TOWARDZERO);
    f.Leave();
    kept = fegetround();
  });
  fesetround(before);
  fiber.Resume();
  EXPECT_EQ(fegetround(), before);
  fiber.Resume();
  EXPECT_EQ(at_start, FE_UPWARD);  // that of the caller of Prepare
  EXPECT_EQ(kept, FE_TOWARDZERO);
  EXPECT_EQ(fegetround(), before);
}

TEST(ContextTest, StackIsAlignedAtEntry) {
  Context thread;
  thread.AdoptThread();
  uintptr_t remainder = 1;
  Fiber fiber(thread, [&](Fiber&) {
    alignas(16) volatile char probe[16] = {};
    remainder = reinterpret_cast<uintptr_t>(&probe) % 16;
  });
  fiber.Resume();
  EXPECT_EQ(remainder, 0u);
}

TEST(ContextTest, ContextsResumeEachOther) {
  Context thread;
  thread.AdoptThread();
  constexpr int kRounds = 1000;
  std::vector<int> order;
  Fiber* second_fiber = nullptr;
  Fiber first(thread, [&](Fiber& f) {
    for (int i = 0; i < kRounds; ++i) {
      order.push_back(2 * i);
      Context::Switch(f.context(), second_fiber->context());
    }
  });
  Fiber second(thread, [&](Fiber& f) {
    for (int i = 0; i < kRounds; ++i) {
      order.push_back(2 * i + 1);
      Context::Switch(f.context(), first.context());
    }
  });
  second_fiber = &second;
  first.Resume();
  ASSERT_TRUE(first.done());
  ASSERT_EQ(order.size(), 2u * kRounds);
  for (int i = 0; i < 2 * kRounds; ++i) ASSERT_EQ(order[i], i);
  second.Resume();
  EXPECT_TRUE(second.done());
}

TEST(ContextTest, ResumedByAnotherThread) {
  Context here;
  here.AdoptThread();
  // (pthread_self() is declared free of side effects: compilers would call it
  // once for both sides of a switch.)
  pid_t ids[3];
  Fiber fiber(here, [&](Fiber& f) {
    ids[0] = CurrentTid();
    f.Leave();
    ids[1] = CurrentTid();
    f.Leave();
  });
  fiber.Resume();
  std::thread other([&] {
    Context there;
    there.AdoptThread();
    ids[2] = CurrentTid();
    fiber.ResumeFrom(there);
  });
  other.join();
  fiber.ResumeFrom(here);
  EXPECT_TRUE(fiber.done());
  EXPECT_EQ(ids[0], CurrentTid());
  EXPECT_EQ(ids[1], ids[2]);
}

[[gnu::noinline]] int DepthHere() {
  void* frames[64];
  return backtrace(frames, 64);
}

[[gnu::noinline]] int DepthUnder(int levels) {
  if (levels == 0) return DepthHere();
  const int depth = DepthUnder(levels - 1);
  asm volatile("");  // no tail call
  return depth;
}

TEST(ContextTest, BacktraceEndsAtTheEntry) {
  Context thread;
  thread.AdoptThread();
  int shallow = 0;
  int deep = 0;
  Fiber fiber(thread, [&](Fiber& f) {
    shallow = DepthUnder(1);
    f.Leave();
    deep = DepthUnder(11);
  });
  fiber.Resume();
  fiber.Resume();
  EXPECT_GE(shallow, 3);
  EXPECT_LT(shallow, 30);
  EXPECT_EQ(deep, shallow + 10);
}

TEST(ContextTest, ManyAtOnce) {
  // TSan has room for some 8,000 threads and fibers.
  constexpr int kCount = kTsan ? 2000 : 10'000;
  Context thread;
  thread.AdoptThread();
  std::vector<std::unique_ptr<Fiber>> fibers;
  uint64_t sum = 0;
  for (int i = 0; i < kCount; ++i) {
    fibers.push_back(std::make_unique<Fiber>(thread, [&sum, i](Fiber& f) {
      volatile int kept[16];
      kept[i % 16] = i;
      f.Leave();
      sum += kept[i % 16];
    }));
  }
  for (auto& fiber : fibers) fiber->Resume();
  EXPECT_EQ(sum, 0u);
  for (auto& fiber : fibers) fiber->Resume();
  EXPECT_EQ(sum, uint64_t{kCount} * (kCount - 1) / 2);
}

TEST(ContextTest, CreatedAndEndedForEver) {
  Context thread;
  thread.AdoptThread();
  constexpr int kCount = testing::Rounds(200'000);
  int ran = 0;
  testing::TestStack stack;
  for (int i = 0; i < kCount; ++i) {
    Fiber fiber(thread, stack.bounds(), [&](Fiber& f) {
      volatile char frame[2000];
      frame[i % 2000] = 1;
      frame[0] = frame[i % 2000];
      if (i % 2 != 0) f.Leave();
      ++ran;
    });
    fiber.Resume();
    if (i % 2 != 0) fiber.Resume();
    ASSERT_TRUE(fiber.done());
  }
  EXPECT_EQ(ran, kCount);
}

[[gnu::noinline]] void LeaveDeep(Fiber& f, int depth) {
  volatile char frame[200] = {};
  if (depth > 0) {
    LeaveDeep(f, depth - 1);
  } else {
    f.Leave();
  }
  frame[0] = frame[depth % 200];
}

// The stack of a context that never went on is used again.
TEST(ContextTest, DiscardedOnesLeaveNothing) {
  Context thread;
  thread.AdoptThread();
  testing::TestStack stack;
  int ran = 0;
  for (int i = 0; i < testing::Rounds(10'000); ++i) {
    Fiber fiber(thread, stack.bounds(), [&](Fiber& f) {
      ++ran;
      LeaveDeep(f, 20);
    });
    if (i % 3 != 0) fiber.Resume();
    fiber.context().Discard();
  }
  EXPECT_GT(ran, 0);
}

TEST(ContextTest, SaysWhereItStands) {
  Context thread;
  thread.AdoptThread();
  Fiber fiber(thread, [&](Fiber& f) { f.Leave(); });
  EXPECT_EQ(fiber.context().stack_pointer(), fiber.stack().high);
  fiber.Resume();
  EXPECT_GE(fiber.context().scan_begin(), fiber.stack().low);
  EXPECT_LT(fiber.context().stack_pointer(), fiber.stack().high);
  EXPECT_NE(fiber.context().program_counter(), 0u);
  fiber.Resume();
}

// A pointer that only a suspended context keeps is on its stack, or in
// registers() (incident I8).
[[gnu::noinline]] bool IsFound(const Fiber& fiber, uintptr_t wanted) {
  const Context& context = fiber.context();
  for (size_t i = 0; i < Context::kRegisters; ++i) {
    if (context.registers()[i] == wanted) return true;
  }
  for (uintptr_t at = context.scan_begin(); at < fiber.stack().high;
       at += sizeof(uintptr_t)) {
    uintptr_t word;
    __builtin_memcpy(&word, reinterpret_cast<const void*>(at), sizeof(word));
    if (word == wanted) return true;
  }
  return false;
}

TEST(ContextTest, RootsOfASuspendedOneAreFound) {
  if (kAsan) GTEST_SKIP() << "they may be on a fake stack";
  Context thread;
  thread.AdoptThread();
  constexpr uintptr_t kKey = 0x5a5a5a5a12345678;
  uintptr_t kept = 0;
  Fiber fiber(thread, [&](Fiber& f) {
    uintptr_t root = kKey;
    asm volatile("notq %0" : "+r"(root));
    Context::Switch(f.context(), thread);
    kept = root;
  });
  fiber.Resume();
  EXPECT_TRUE(IsFound(fiber, ~kKey));
  fiber.Resume();
  EXPECT_EQ(kept, ~kKey);
}

TEST(ContextDeathTest, EntryMayNotReturn) {
  EXPECT_DIES_SAYING(
      {
        Context thread;
        thread.AdoptThread();
        testing::TestStack stack;
        Context context;
        context.Prepare(
            stack.bounds(), [](void*) {}, nullptr);
        Context::Switch(thread, context);
      },
      "returned", "SwitchFinally");
}

TEST(ContextDeathTest, ExceptionThatLeavesTheEntryTerminates) {
  EXPECT_EXIT(
      {
        Context thread;
        thread.AdoptThread();
        testing::TestStack stack;
        Context context;
        context.Prepare(
            stack.bounds(), [](void*) { throw 7; }, nullptr);
        Context::Switch(thread, context);
      },
      ::testing::KilledBySignal(SIGABRT), "terminate called.*'int'");
}

TEST(ContextDeathTest, OnlySuspendedOnesAreResumed) {
  if (!kDebugChecks) GTEST_SKIP() << "no debug checks in this build";
  EXPECT_DIES_SAYING(
      {
        Context thread;
        thread.AdoptThread();
        Context idle;
        Context::Switch(thread, idle);
      },
      "not suspended");
  EXPECT_DIES_SAYING(
      {
        Context thread;
        thread.AdoptThread();
        Context::Switch(thread, thread);
      },
      "not suspended");
}

}  // namespace
}  // namespace stillpoint
