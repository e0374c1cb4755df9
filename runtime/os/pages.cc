#include "runtime/os/pages.h"

#include <sys/mman.h>

#include <cstddef>

#include "runtime/base/check.h"
#include "runtime/base/sanitizer.h"

#if defined(STILLPOINT_ASAN)
#include <sanitizer/lsan_interface.h>
#endif

namespace stillpoint {
namespace {

// The leak checker knows only memory that came from malloc. What is referred to
// from these pages alone would be a leak to it, if the process ends while a
// thread is on its way out.
void TellLeakChecker([[maybe_unused]] void* memory,
                     [[maybe_unused]] size_t size,
                     [[maybe_unused]] bool mapped) {
#if defined(STILLPOINT_ASAN)
  if (mapped) {
    __lsan_register_root_region(memory, size);
  } else {
    __lsan_unregister_root_region(memory, size);
  }
#endif
}

}  // namespace

void* MapPages(size_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  TellLeakChecker(memory, size, /*mapped=*/true);
  return memory;
}

void UnmapPages(void* memory, size_t size) {
  STILLPOINT_CHECK(munmap(memory, size) == 0,
                   "munmap refused memory that came from MapPages");
  TellLeakChecker(memory, size, /*mapped=*/false);
}

}  // namespace stillpoint
