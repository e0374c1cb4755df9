// May the calling thread wait here at all?

#ifndef STILLPOINT_RUNTIME_THREAD_WAIT_CHECK_H_
#define STILLPOINT_RUNTIME_THREAD_WAIT_CHECK_H_

#include <string_view>

#include "absl/status/status.h"
#include "runtime/base/tls_block.h"

namespace stillpoint {

// FailedPrecondition, naming the reason and the remedy, if `what` would wait
// for another thread at a place where that may never end: in a VM operation,
// in the closure of a handshake, with a ranked lock held, inside a
// NoSafepointScope. In every build.
absl::Status CheckMayWait(std::string_view what);

// Whether CheckMayWait would say OK: a few loads, for paths where a call costs.
inline bool MayWait() {
  return tls_block.handshake == nullptr && tls_block.vm_thread_of == nullptr &&
         tls_block.held_count == 0 && tls_block.no_safepoint_depth == 0;
}

// The part of it that holds in an operation, too: FailedPrecondition in the
// closure of a handshake.
absl::Status CheckNotInHandshake(std::string_view what);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_WAIT_CHECK_H_
