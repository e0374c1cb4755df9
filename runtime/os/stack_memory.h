// Address space for stacks, many in one mapping, with guards between them.

#ifndef STILLPOINT_RUNTIME_OS_STACK_MEMORY_H_
#define STILLPOINT_RUNTIME_OS_STACK_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stillpoint {

enum class GuardPolicy {
  kAuto,     // markers where the kernel has them, else protected pages
  kProtect,  // protected pages (mprotect), everywhere
};

// Any thread; it holds no lock, and allocates for the text of errors only.
class StackMemory {
 public:
  explicit StackMemory(GuardPolicy policy)
      : protects_(policy == GuardPolicy::kProtect) {}

  // `size` bytes (whole pages) of zeroed private memory, lazily touched, not
  // charged before that, and never in huge pages: a stack of which one page is
  // used takes one page. One mapping. Errors: ResourceExhausted naming the
  // limits that can be the cause.
  absl::StatusOr<uintptr_t> Reserve(size_t size);

  // Gives back what Reserve returned, with the same size.
  static void Release(uintptr_t low, size_t size);

  // From now on, touching [low, low + size), whole pages of what Reserve
  // returned, is SIGSEGV. By MADV_GUARD_INSTALL (Linux 6.13), which costs page
  // table entries and no mapping, else by mprotect, which makes two mappings
  // more of the one it cuts. Errors: ResourceExhausted; when mappings ran out
  // it names vm.max_map_count.
  absl::Status Guard(uintptr_t low, size_t size);

  // Gives the pages of [low, low + size) back to the system: they read as zero
  // when touched again. Guards within stay. Pages stay, too, where the kernel
  // refuses (then false).
  static bool GiveBack(uintptr_t low, size_t size);

  // Whether guards are protected pages, by policy or because the kernel has no
  // markers.
  bool protects() const;

  // The leak checker of ASan builds looks for pointers there, or no longer.
  // (Not all that Reserve returns: it would stumble over guards.)
  static void SetLeakRoot(uintptr_t low, size_t size, bool is_root);

 private:
  std::atomic<bool> protects_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_STACK_MEMORY_H_
