// Zeroed memory straight from the kernel.

#ifndef STILLPOINT_RUNTIME_OS_PAGES_H_
#define STILLPOINT_RUNTIME_OS_PAGES_H_

#include <cstddef>

namespace stillpoint {

// `size` bytes of zeroed, page-aligned private memory, touched lazily; null
// when the system has none (errno says why).
void* MapPages(size_t size);

// Gives back what MapPages returned, with the same size.
void UnmapPages(void* memory, size_t size);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_PAGES_H_
