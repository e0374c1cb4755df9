#include "runtime/os/pages.h"

#include <errno.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "gtest/gtest.h"
#include "runtime/base/sanitizer.h"
#include "tests/base/death.h"

#if defined(STILLPOINT_ASAN)
#include <sanitizer/lsan_interface.h>
#endif

namespace stillpoint {
namespace {

TEST(PagesTest, AreZeroedAlignedAndWritable) {
  constexpr size_t kSize = 100'000;  // not whole pages
  auto* bytes = static_cast<unsigned char*>(MapPages(kSize));
  ASSERT_NE(bytes, nullptr);
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % page, 0u);
  for (size_t i = 0; i < kSize; ++i) {
    ASSERT_EQ(bytes[i], 0);
    bytes[i] = 0xA5;
  }
  UnmapPages(bytes, kSize);
}

TEST(PagesTest, NullAndErrnoWhenThereIsNoMemory) {
  errno = 0;
  EXPECT_EQ(MapPages(size_t{1} << 62), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

#if defined(STILLPOINT_ASAN)
// Writes the only reference to new memory into `place`.
[[gnu::noinline]] void ReferTo(void* place) {
  *static_cast<char**>(place) = new char[123];
}

// A frame over the one that has held the reference.
[[gnu::noinline]] void OverwriteStack() {
  volatile char bytes[4096];
  for (volatile char& byte : bytes) byte = 0;
}

// The end of a process may find a thread that is on its way out, whose name is
// in the slot's pages alone.
TEST(PagesTest, KeepWhatTheyReferToFromTheLeakChecker) {
  void* pages = MapPages(4096);
  ASSERT_NE(pages, nullptr);
  ReferTo(pages);
  OverwriteStack();
  EXPECT_EQ(__lsan_do_recoverable_leak_check(), 0);
  delete[] * static_cast<char**>(pages);
  UnmapPages(pages, 4096);
}
#endif

TEST(PagesDeathTest, UnmappingSomethingElseIsMisuse) {
  void* pages = MapPages(4096);
  ASSERT_NE(pages, nullptr);
  EXPECT_DIES_SAYING(UnmapPages(static_cast<char*>(pages) + 1, 4096),
                     "munmap refused");
  UnmapPages(pages, 4096);
}

}  // namespace
}  // namespace stillpoint
