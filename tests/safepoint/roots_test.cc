// A conservative scan of what the world shows finds every root: an object whose
// only reference is a local variable of a stopped thread, which an optimiser
// keeps in a callee-saved register or on the stack. Built twice, with and
// without optimisation, since that decides which of the two it is.

#include <atomic>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"
#include "tests/support/await.h"
#include "tests/support/runtime_test.h"

// AddressSanitizer moves locals off the stack (use-after-return) and fences the
// rest; a collector's embedder has to build its frames as plainly as this.
#define PLAIN_FRAME [[gnu::noinline, gnu::no_sanitize_address]]

namespace stillpoint {
namespace {

using testing::Await;
using testing::AwaitState;
using testing::StartOrFail;

// A reference that is not one: a scan does not find what is stored like this.
constexpr uintptr_t kDisguise = ~uintptr_t{0};

// A reference, disguised, that was never in memory before. (The address of an
// object could be one that an earlier thread left on a stack which the next
// thread gets: a conservative scan finds that, and rightly so.)
uintptr_t NewDisguised() {
  static std::atomic<uintptr_t> count{0};
  return ++count * 0x9e3779b97f4a7c15;
}
// In place of one, where there is none.
constexpr uintptr_t kNoReference = kDisguise;

// Whether any word of `thread`'s roots is `reference`. Reads another thread's
// stack while that may run on in native code, as collectors do.
[[gnu::noinline, gnu::no_sanitize_address, gnu::no_sanitize_thread]] bool
HasRoot(const StoppedThread& thread, uintptr_t disguised) {
  for (const uintptr_t word : thread.registers()) {
    if ((word ^ kDisguise) == disguised) return true;
  }
  if (thread.scan_begin() == 0) return false;
  const auto* word = reinterpret_cast<const volatile uintptr_t*>(
      thread.scan_begin() & ~(sizeof(uintptr_t) - 1));
  const auto* high =
      reinterpret_cast<const volatile uintptr_t*>(thread.stack().high);
  for (; word < high; ++word) {
    if ((*word ^ kDisguise) == disguised) return true;
  }
  return false;
}

class RootsTest : public testing::RuntimeTest {
 protected:
  // Whether the scan finds the object in the thread of that name.
  bool Finds(std::string_view name, uintptr_t disguised) {
    bool found = false;
    int visited = 0;
    EXPECT_TRUE(runtime()
                    .AtSafepoint("scan",
                                 [&](World& world) {
                                   canary().Check();
                                   world.ForEachThread(
                                       [&](const StoppedThread& thread) {
                                         if (thread.name() != name) return;
                                         ++visited;
                                         found = HasRoot(thread, disguised);
                                       });
                                 })
                    .ok());
    EXPECT_EQ(visited, 1);
    return found;
  }

  void ExpectFoundWhileNative(void (*hold)(uintptr_t,
                                           absl::FunctionRef<void()>));
};
STILLPOINT_IN_ALL_CONFIGURATIONS(RootsTest);

// The barriers make the reference exist from the first to the second, in a
// place of the compiler's choice, and nowhere else. At -O2 that is a
// callee-saved register in each of these.
#define BEGIN_ROOT(reference, disguised)         \
  uintptr_t reference = (disguised) ^ kDisguise; \
  asm volatile("" : "+r"(reference) : : "memory")
#define END_ROOT(reference) asm volatile("" : : "r"(reference) : "memory")

// (a) Stopped in Poll, called from this very frame.
PLAIN_FRAME void HoldAcrossPolls(uintptr_t disguised,
                                 const std::atomic<bool>& stop,
                                 std::atomic<bool>& ready) {
  BEGIN_ROOT(reference, disguised);
  ready.store(true, std::memory_order_relaxed);
  while (!stop.load(std::memory_order_relaxed)) Poll();
  END_ROOT(reference);
}

// (b) In native code, below this very frame.
PLAIN_FRAME void HoldAcrossNative(uintptr_t disguised,
                                  absl::FunctionRef<void()> native_code) {
  BEGIN_ROOT(reference, disguised);
  {
    NativeScope native;
    native_code();
  }
  END_ROOT(reference);
}

// A visit to Managed from native code, in a frame that keeps the caller's
// registers and is gone afterwards.
PLAIN_FRAME void VisitManaged() {
  ManagedScope managed;
#if defined(__x86_64__)
  asm volatile(
      "xor %%ebx, %%ebx\n\t"
      "xor %%r12d, %%r12d\n\t"
      "xor %%r13d, %%r13d\n\t"
      "xor %%r14d, %%r14d\n\t"
      "xor %%r15d, %%r15d\n\t"
      :
      :
      : "rbx", "r12", "r13", "r14", "r15", "memory");
#else
  asm volatile("" : : : "memory");
#endif
}

// Calls `inner` with a wide frame in between, which needs no register.
PLAIN_FRAME void Below(absl::FunctionRef<void()> inner) {
  // Over what the last call left there.
  uintptr_t between[512];
  for (uintptr_t& word : between) word = 0x5a5a5a5a;
  asm volatile("" : : "r"(between) : "memory");
  inner();
  asm volatile("" : : "r"(between) : "memory");
}

// (b') The same, when the native code has called back meanwhile.
PLAIN_FRAME void HoldAcrossVisit(uintptr_t disguised,
                                 absl::FunctionRef<void()> native_code) {
  BEGIN_ROOT(reference, disguised);
  {
    NativeScope native;
    VisitManaged();
    Below(native_code);
  }
  END_ROOT(reference);
}

// (c) In a wait of the runtime.
PLAIN_FRAME void HoldAcrossPark(uintptr_t disguised, std::atomic<bool>& ready) {
  BEGIN_ROOT(reference, disguised);
  ready.store(true);
  const bool parked = Park().ok();
  END_ROOT(reference);
  EXPECT_TRUE(parked);
}

// (d) In a frame further out.
PLAIN_FRAME void HoldAcross(uintptr_t disguised,
                            absl::FunctionRef<void()> inner) {
  BEGIN_ROOT(reference, disguised);
  inner();
  END_ROOT(reference);
}

// Calls `inner` well below this frame, so that what was published when the
// thread last left Managed, here, is of no use for it.
PLAIN_FRAME void FurtherDown(absl::FunctionRef<void()> inner) {
  { NativeScope published_earlier; }
  volatile uintptr_t between[512];
  for (volatile uintptr_t& word : between) word = 0x5a5a5a5a;
  inner();
  for (volatile uintptr_t& word : between) word = 0;
}

// `hold` holds a reference while it runs native code.
void RootsTest::ExpectFoundWhileNative(
    void (*hold)(uintptr_t disguised, absl::FunctionRef<void()> native_code)) {
  const uintptr_t disguised = NewDisguised();
  std::atomic<bool> stop{false};
  std::atomic<bool> ready{false};
  const ThreadHandle thread =
      StartOrFail(runtime(), "holder", [&, disguised, hold] {
        ManagedScope managed;
        FurtherDown([&, disguised, hold] {
          hold(disguised, [&] {
            ready.store(true);
            // Runs on, in frames of its own and with registers of its own.
            Await([&] { return stop.load(); });
          });
        });
      });
  Await([&] { return ready.load(); });
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Finds("holder", disguised));
  stop.store(true);
  EXPECT_TRUE(thread.Join().ok());
}

TEST_P(RootsTest, FoundInAThreadStoppedAtAPoll) {
  const uintptr_t disguised = NewDisguised();
  std::atomic<bool> stop{false};
  std::atomic<bool> ready{false};
  const ThreadHandle thread = StartOrFail(runtime(), "holder", [&, disguised] {
    ManagedScope managed;
    FurtherDown([&, disguised] { HoldAcrossPolls(disguised, stop, ready); });
  });
  Await([&] { return ready.load(); });
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Finds("holder", disguised));
  stop.store(true);
  EXPECT_TRUE(thread.Join().ok());
}

TEST_P(RootsTest, FoundInAThreadInNativeCode) {
  ExpectFoundWhileNative(HoldAcrossNative);
}

TEST_P(RootsTest, FoundWhenNativeCodeHasCalledBack) {
  ExpectFoundWhileNative(HoldAcrossVisit);
}

TEST_P(RootsTest, FoundInAThreadThatWaitsInTheRuntime) {
  const uintptr_t disguised = NewDisguised();
  std::atomic<bool> ready{false};
  const ThreadHandle thread = StartOrFail(runtime(), "holder", [&, disguised] {
    ManagedScope managed;
    FurtherDown([&, disguised] { HoldAcrossPark(disguised, ready); });
  });
  Await([&] { return ready.load(); });
  AwaitState(runtime(), "holder", ThreadState::kBlocked);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Finds("holder", disguised));
  thread.Unpark();
  EXPECT_TRUE(thread.Join().ok());
}

TEST_P(RootsTest, FoundInAnOuterFrame) {
  const uintptr_t disguised = NewDisguised();
  std::atomic<bool> stop{false};
  std::atomic<bool> ready{false};
  const ThreadHandle thread = StartOrFail(runtime(), "holder", [&, disguised] {
    ManagedScope managed;
    FurtherDown([&, disguised] {
      HoldAcross(disguised, [&] {
        HoldAcross(kNoReference,
                   [&] { HoldAcrossPolls(kNoReference, stop, ready); });
      });
    });
  });
  Await([&] { return ready.load(); });
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Finds("holder", disguised));
  stop.store(true);
  EXPECT_TRUE(thread.Join().ok());
}

// A thread that comes back to Managed during a stop steps back, and what it has
// published stays readable while it does (it keeps the roots of before).
TEST_P(RootsTest, FoundInAThreadThatComesBackDuringTheStop) {
  const uintptr_t disguised = NewDisguised();
  std::atomic<bool> come_back{false};
  std::atomic<bool> ready{false};
  const ThreadHandle thread = StartOrFail(runtime(), "holder", [&, disguised] {
    ManagedScope managed;
    FurtherDown([&, disguised] {
      HoldAcrossNative(disguised, [&] {
        ready.store(true);
        Await([&] { return come_back.load(); });
      });
    });
  });
  Await([&] { return ready.load(); });
  ASSERT_TRUE(
      runtime()
          .AtSafepoint("scan",
                       [&](World& world) {
                         const auto scan = [&] {
                           world.ForEachThread(
                               [&](const StoppedThread& stopped) {
                                 EXPECT_TRUE(HasRoot(stopped, disguised));
                               });
                         };
                         scan();
                         come_back.store(true);
                         for (int i = 0; i < 20; ++i) scan();
                         AwaitState(runtime(), "holder", ThreadState::kBlocked);
                         scan();
                       })
          .ok());
  EXPECT_TRUE(thread.Join().ok());
}

// The scan can also fail: it does not find what is not there.
TEST_P(RootsTest, NotFoundWithoutAReference) {
  const uintptr_t disguised = NewDisguised();
  std::atomic<bool> stop{false};
  std::atomic<bool> ready{false};
  const ThreadHandle thread = StartOrFail(runtime(), "holder", [&] {
    ManagedScope managed;
    FurtherDown([&] { HoldAcrossPolls(kNoReference, stop, ready); });
  });
  Await([&] { return ready.load(); });
  EXPECT_FALSE(Finds("holder", disguised));
  stop.store(true);
  EXPECT_TRUE(thread.Join().ok());
}

}  // namespace
}  // namespace stillpoint
