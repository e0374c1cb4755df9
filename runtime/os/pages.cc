#include "runtime/os/pages.h"

#include <sys/mman.h>

#include <cstddef>

#include "runtime/base/check.h"

namespace stillpoint {

void* MapPages(size_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void UnmapPages(void* memory, size_t size) {
  STILLPOINT_CHECK(munmap(memory, size) == 0,
                   "munmap refused memory that came from MapPages");
}

}  // namespace stillpoint
