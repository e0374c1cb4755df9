#include "runtime/os/pages.h"

#include <errno.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "gtest/gtest.h"
#include "tests/base/death.h"

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

TEST(PagesDeathTest, UnmappingSomethingElseIsMisuse) {
  void* pages = MapPages(4096);
  ASSERT_NE(pages, nullptr);
  EXPECT_DIES_SAYING(UnmapPages(static_cast<char*>(pages) + 1, 4096),
                     "munmap refused");
  UnmapPages(pages, 4096);
}

}  // namespace
}  // namespace stillpoint
