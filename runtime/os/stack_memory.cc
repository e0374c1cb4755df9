#include "runtime/os/stack_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/sanitizer.h"
#include "runtime/os/limits.h"

#if defined(STILLPOINT_ASAN)
#include <sanitizer/lsan_interface.h>
#endif

namespace stillpoint {
namespace {

// asm-generic/mman-common.h of Linux 6.13.
constexpr int kMadvGuardInstall = 102;

constexpr char kMaxMapCount[] = "/proc/sys/vm/max_map_count";

absl::Status GuardError(const char* call, int error) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot guard a stack: ", call, ": ", std::strerror(error),
      ". Guards that are protected pages take two mappings a stack, and "
      "vm.max_map_count = ",
      FirstLine(kMaxMapCount),
      ": raise it (sysctl vm.max_map_count), have fewer green threads at once, "
      "or use Linux 6.13 or later, which guards without mappings"));
}

}  // namespace

absl::StatusOr<uintptr_t> StackMemory::Reserve(size_t size) {
  void* memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot reserve ", size,
        " bytes of address space for stacks: ", std::strerror(error),
        ". Limits that can be the cause: address space "
        "(ulimit -v, in bytes) = ",
        LimitText(RLIMIT_AS), ", vm.max_map_count = ", FirstLine(kMaxMapCount),
        ", vm.overcommit_memory = ",
        FirstLine("/proc/sys/vm/overcommit_memory"),
        " (2 charges untouched memory, too). Raise the limit, have fewer green "
        "threads at once, or give them smaller stacks"));
  }
  // MAP_STACK says the same to Linux 6.7 and later. Fails where there are no
  // huge pages to begin with.
  madvise(memory, size, MADV_NOHUGEPAGE);
  return reinterpret_cast<uintptr_t>(memory);
}

void StackMemory::Release(uintptr_t low, size_t size) {
  STILLPOINT_CHECK(munmap(reinterpret_cast<void*>(low), size) == 0,
                   "munmap refused memory that came from StackMemory");
}

absl::Status StackMemory::Guard(uintptr_t low, size_t size) {
  auto* memory = reinterpret_cast<void*>(low);
  if (!protects()) {
    while (madvise(memory, size, kMadvGuardInstall) != 0) {
      // Page tables are memory, too. Else the kernel has no markers, has none
      // for locked memory (mlockall), or a filter forbids them.
      if (errno == ENOMEM) {
        return absl::ResourceExhaustedError(
            "cannot guard a stack: the kernel has no memory for page tables; "
            "have fewer green threads at once");
      }
      if (errno == EINTR) continue;
      protects_.store(true);
      break;
    }
    if (!protects()) return absl::OkStatus();
  }
  if (mprotect(memory, size, PROT_NONE) == 0) return absl::OkStatus();
  return GuardError("mprotect", errno);
}

bool StackMemory::GiveBack(uintptr_t low, size_t size) {
  return madvise(reinterpret_cast<void*>(low), size, MADV_DONTNEED) == 0;
}

bool StackMemory::protects() const { return protects_.load(); }

void StackMemory::SetLeakRoot([[maybe_unused]] uintptr_t low,
                              [[maybe_unused]] size_t size,
                              [[maybe_unused]] bool is_root) {
#if defined(STILLPOINT_ASAN)
  auto* memory = reinterpret_cast<void*>(low);
  if (is_root) {
    __lsan_register_root_region(memory, size);
  } else {
    __lsan_unregister_root_region(memory, size);
  }
#endif
}

}  // namespace stillpoint
