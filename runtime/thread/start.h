// The life of a thread: start, attach, run, detach, exit.

#ifndef STILLPOINT_RUNTIME_THREAD_START_H_
#define STILLPOINT_RUNTIME_THREAD_START_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/thread_state.h"
#include "runtime/thread/registry.h"
#include "runtime/thread/thread_handle.h"

namespace stillpoint {

struct ThreadOptions {
  // Shown in logs and dumps, and (its first 15 bytes) by the system. Empty:
  // "thread-<id>" or "green-<id>".
  std::string name = {};
  // Bytes of stack; 0: the runtime's default for the kind. Of a green thread 8
  // KiB to 8 MiB, rounded up to a power of two.
  size_t stack_size = 0;
  // How late the kernel may be with the thread's timed waits: kMinTimerSlack
  // to kMaxTimerSlack (timer_slack.h); native threads only. Unset: the
  // runtime's, and if that is unset too, what the starting thread has.
  std::optional<std::chrono::nanoseconds> timer_slack = std::nullopt;
  // kNative: an OS thread of its own. kGreen: scheduled on the runtime's
  // carriers.
  ThreadKind kind = ThreadKind::kNative;
};

// See Runtime::Start.
absl::StatusOr<ThreadHandle> StartThread(Registry& registry,
                                         ThreadOptions options,
                                         absl::AnyInvocable<void()> body);

// The calling OS thread, which green/ has created, becomes the carrier that
// was admitted as `line`: it is no member, takes part in no stop, and runs
// green threads, which do. And the inverse, at the OS thread's end; the
// registry may end with it.
void BecomeCarrier(Registry& registry, Thread& line);
void StopBeingCarrier(Registry& registry, Thread& line);

// Whether the bounds of an attached thread's stack are asked for: without, it
// may run no managed code that has roots. (On the main thread they take a file
// of /proc, and tens of microseconds.)
enum class AttachStack { kFind, kLeaveOut };

// See Runtime::AttachCurrentThread.
absl::Status AttachCurrentThread(Registry& registry, std::string_view name,
                                 AttachStack stack = AttachStack::kFind);

// See Runtime::DetachCurrentThread.
absl::Status DetachCurrentThread(Registry& registry);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_START_H_
