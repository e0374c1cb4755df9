// Calls that block in the kernel, made from green threads.

#ifndef STILLPOINT_RUNTIME_GREEN_BLOCKING_CALL_H_
#define STILLPOINT_RUNTIME_GREEN_BLOCKING_CALL_H_

#include <exception>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/functional/function_ref.h"

namespace stillpoint {

namespace blocking_call_internal {
// Runs `call`, which does not throw, where it may block.
void Run(absl::FunctionRef<void()> call);
}  // namespace blocking_call_internal

// Returns call(), which may block in the kernel for long: a read, a connect, a
// wait for a child. In a green thread it runs on an OS thread of the runtime's
// own, while the carrier runs other green threads; anywhere else, right here. A
// Managed caller is Blocked meanwhile, and may wait for a stop on its way back,
// so `call` touches no managed data. What it throws is thrown here.
//
// On that OS thread nobody is attached to a runtime, thread-local variables
// (errno among them: return it with the result) are its own, and all signals
// are blocked. It has an ordinary stack. Not interruptible: what it calls has
// to have a time limit, or another way to be ended, and Shutdown waits for it.
// If no more OS threads are to be had, `call` runs on the carrier after all,
// and those that wait behind it are reported (docs/green_threads.md).
//
// It dies with a sentence where a thread may not wait: in an operation or a
// handshake, with a ranked lock held, inside a NoSafepointScope.
template <typename Call>
std::invoke_result_t<Call&> BlockingCall(Call call) {
  using Result = std::invoke_result_t<Call&>;
  std::exception_ptr thrown;
  if constexpr (std::is_void_v<Result>) {
    blocking_call_internal::Run([&] {
      try {
        call();
      } catch (...) {
        thrown = std::current_exception();
      }
    });
    if (thrown != nullptr) std::rethrow_exception(std::move(thrown));
  } else {
    static_assert(!std::is_reference_v<Result>,
                  "what a BlockingCall refers to may be gone: return a value");
    std::optional<Result> result;
    blocking_call_internal::Run([&] {
      try {
        result.emplace(call());
      } catch (...) {
        thrown = std::current_exception();
      }
    });
    if (thrown != nullptr) std::rethrow_exception(std::move(thrown));
    return *std::move(result);
  }
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_BLOCKING_CALL_H_
