// Where memory runs out and operator new throws, nothing is left behind.

#include <sys/types.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "runtime/stillpoint.h"
#include "tests/os/thread_watch.h"
#include "tests/support/runtime_test.h"

namespace {

thread_local bool no_memory = false;

}  // namespace

// Not inlined, so that g++ does not take malloc and free, which it then sees in
// one place and not in the other, for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t size) {
  void* const memory = no_memory ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace stillpoint {
namespace {

template <typename F>
bool Throws(F f) {
  bool thrown = false;
  no_memory = true;
  try {
    f();
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  no_memory = false;
  return thrown;
}

// Its end waits for all members: one that was counted and never came into being
// would keep it for ever.
class NoMemoryTest : public testing::RuntimeTest {};
STILLPOINT_IN_ALL_CONFIGURATIONS(NoMemoryTest);

TEST_P(NoMemoryTest, StartAndAttachCountNobody) {
  const std::string name = "a name that needs memory of its own";
  ThreadOptions options;
  options.name = name;
  EXPECT_TRUE(
      Throws([&] { (void)runtime().Start(std::move(options), [] {}); }));
  EXPECT_TRUE(Throws([&] { (void)runtime().AttachCurrentThread(name); }));
  EXPECT_EQ(runtime().ThreadCount(), 0u);
}

TEST_P(NoMemoryTest, ASnapshotLosesNoPin) {
  pid_t tid = 0;
  const ThreadHandle first = testing::StartOrFail(runtime(), "first", [&] {
    tid = Thread::CurrentOrDie().tid();
    EXPECT_TRUE(Park().ok());
  });
  EXPECT_TRUE(Throws([&] { (void)runtime().Threads(); }));
  EXPECT_TRUE(first.Unpark());
  EXPECT_TRUE(first.Join().ok());
  testing::AwaitGone(tid);  // the slot is given up a little after the join
  // It is free: the next thread gets it.
  const ThreadHandle next = testing::StartOrFail(runtime(), "next", [] {});
  EXPECT_EQ(next.slot(), first.slot());
  EXPECT_TRUE(next.Join().ok());
}

}  // namespace
}  // namespace stillpoint
