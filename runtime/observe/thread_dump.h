// Thread dumps: what each thread is and does. Embedders call
// Runtime::DumpThreads; docs/diagnostics.md shows one.

#ifndef STILLPOINT_RUNTIME_OBSERVE_THREAD_DUMP_H_
#define STILLPOINT_RUNTIME_OBSERVE_THREAD_DUMP_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/thread/registry.h"

namespace stillpoint {

struct ThreadDumpOptions {
  // All threads at one instant, with the world stopped for it. Otherwise each
  // is looked at in a handshake of its own, while the others run on.
  bool at_safepoint = false;

  // Native backtraces: of each thread's managed frames and what is further out,
  // by frame pointers, as of when it last left managed code; of the others by
  // Options::backtrace_signal, if that is set.
  bool backtraces = false;

  // Whether to look for circles of threads that wait for each other's mutexes.
  bool find_deadlocks = false;

  // How long a thread may take to poll, without a safepoint: a dump is made
  // when something is wrong. One that does not is shown from outside.
  std::chrono::nanoseconds patience = std::chrono::milliseconds(200);
};

// --- For the façade. ---

// One thread after the other. Errors: as for a handshake.
absl::StatusOr<std::string> DumpByHandshakes(
    const std::shared_ptr<Registry>& registry, const ThreadDumpOptions& options,
    int backtrace_signal);

// From an operation, at a safepoint.
std::string DumpStoppedWorld(const std::shared_ptr<Registry>& registry,
                             const ThreadDumpOptions& options,
                             int backtrace_signal);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OBSERVE_THREAD_DUMP_H_
