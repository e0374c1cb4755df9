// A stack for signal handlers, for a thread whose own stack may be full.

#ifndef STILLPOINT_RUNTIME_OS_SIGNAL_STACK_H_
#define STILLPOINT_RUNTIME_OS_SIGNAL_STACK_H_

#include <cstddef>

#include "absl/status/status.h"

namespace stillpoint {

// One OS thread's: made, installed and destroyed by it. Handlers installed with
// SA_ONSTACK run there, whatever stack the thread is on when it is interrupted.
//
// A thread that already has an alternate stack (the embedder's, a sanitizer's,
// another runtime's) keeps it: then this does nothing (incident G7). It has to
// be large enough for the embedder's own handlers; the handler of
// green/stack_overflow.h needs 4 KiB beyond the kernel's part.
class SignalStack {
 public:
  SignalStack() = default;
  // Takes it from the thread, unless somebody has put another in its place.
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

  // Once. Error: ResourceExhausted if there is no memory; nothing has changed
  // then. Some system calls.
  absl::Status Install();

  // Whether the thread had one before.
  bool is_foreign() const { return memory_ == nullptr; }

 private:
  char* memory_ = nullptr;
  size_t size_ = 0;  // with the guard page at its low end
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_SIGNAL_STACK_H_
