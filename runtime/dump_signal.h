// A thread dump whenever the process gets a signal.

#ifndef STILLPOINT_RUNTIME_DUMP_SIGNAL_H_
#define STILLPOINT_RUNTIME_DUMP_SIGNAL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/observe/thread_dump.h"
#include "runtime/runtime.h"

namespace stillpoint {

// While it lives, `signal` makes a thread of its own write a dump; that thread
// sleeps otherwise. The handler only wakes it, and passes the signal on to the
// handler of before (os/owned_signal.h).
class DumpOnSignal {
 public:
  // `runtime` is borrowed, and is destroyed later; `fd` is borrowed. Signals
  // that come while a dump is being written are answered by one more. Errors:
  // of OwnSignal; ResourceExhausted if the thread cannot be created.
  static absl::StatusOr<std::unique_ptr<DumpOnSignal>> Create(
      Runtime& runtime, int signal, int fd,
      ThreadDumpOptions options = ThreadDumpOptions());

  // Waits for a dump that is being written. Afterwards the signal does nothing.
  ~DumpOnSignal();
  DumpOnSignal(const DumpOnSignal&) = delete;
  DumpOnSignal& operator=(const DumpOnSignal&) = delete;

 private:
  struct Shared;
  explicit DumpOnSignal(std::shared_ptr<Shared> shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_DUMP_SIGNAL_H_
