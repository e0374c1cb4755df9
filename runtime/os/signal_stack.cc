#include "runtime/os/signal_stack.h"

#include <errno.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/os/pages.h"

namespace stillpoint {
namespace {

// For handlers: ours is content with a page, the embedder's, to which it passes
// other faults on, may want to print where they are.
constexpr size_t kRoom = size_t{64} << 10;

}  // namespace

absl::Status SignalStack::Install() {
  STILLPOINT_CHECK(memory_ == nullptr, "a signal stack is installed twice");
  stack_t old;
  STILLPOINT_CHECK(sigaltstack(nullptr, &old) == 0,
                   "sigaltstack cannot be asked");
  if ((old.ss_flags & SS_DISABLE) == 0) return absl::OkStatus();
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // What the kernel itself puts there, which grows with the register files of
  // processors.
  const size_t kernel = getauxval(AT_MINSIGSTKSZ);
  const size_t usable = (kRoom + kernel + page - 1) / page * page;
  auto* memory = static_cast<char*>(MapPages(page + usable));
  if (memory == nullptr || mprotect(memory, page, PROT_NONE) != 0) {
    const int error = errno;
    if (memory != nullptr) UnmapPages(memory, page + usable);
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for a signal stack of ", usable,
        " bytes: ", std::strerror(error),
        "; raise the limits (ulimit -v, vm.max_map_count), or have fewer "
        "threads"));
  }
  stack_t stack = {};
  stack.ss_sp = memory + page;
  stack.ss_size = usable;
  STILLPOINT_CHECK(sigaltstack(&stack, nullptr) == 0,
                   "sigaltstack refuses a stack of the size it asks for");
  memory_ = memory;
  size_ = page + usable;
  return absl::OkStatus();
}

SignalStack::~SignalStack() {
  if (memory_ == nullptr) return;
  stack_t now;
  STILLPOINT_CHECK(sigaltstack(nullptr, &now) == 0,
                   "sigaltstack cannot be asked");
  auto* sp = static_cast<char*>(now.ss_sp);
  if ((now.ss_flags & SS_DISABLE) == 0 && sp > memory_ &&
      sp < memory_ + size_) {
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    STILLPOINT_CHECK(sigaltstack(&none, nullptr) == 0,
                     "a signal stack is destroyed by a handler that runs on "
                     "it");
  }
  UnmapPages(memory_, size_);
}

}  // namespace stillpoint
