// The one thread-local block of the runtime: who the calling thread is, which
// ranked locks it holds, and whether it may stop. It is plain data, so that it
// needs no constructor, no destructor and no call to be reached.

#ifndef STILLPOINT_RUNTIME_BASE_TLS_BLOCK_H_
#define STILLPOINT_RUNTIME_BASE_TLS_BLOCK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/spin_tail.h"
#include "runtime/base/thread_state.h"

namespace stillpoint {

class Blocker;     // thread/blocker.h
class Thread;      // thread/thread.h
class RankedLock;  // lock/held_locks.h

struct TlsBlock {
  static constexpr size_t kMaxHeldLocks = 16;

  // The runtime's record of this thread; null while it is not attached.
  Thread* current = nullptr;

  // Its state word, so that floors below thread/ can tell safe from unsafe;
  // null while it is not attached.
  const std::atomic<ThreadState>* state = nullptr;

  // How the calling thread waits: null in an OS thread, which sleeps in the
  // kernel; a green thread lets its carrier run another one.
  Blocker* blocker = nullptr;

  // Ranked locks held, outermost first.
  const RankedLock* held[kMaxHeldLocks] = {};
  uint32_t held_count = 0;

  // Depth of NoSafepointScope: above 0, polls and waits are misuse.
  uint32_t no_safepoint_depth = 0;

  // The name of the handshake whose closure this thread is running; null
  // outside of closures.
  const std::string_view* handshake = nullptr;

  // How many attaches ended otherwise than by a detach: by the end of the OS
  // thread, or in the child of a fork. An AttachScope that is still open has
  // nothing to undo then.
  uint32_t lost_attaches = 0;

  // Whether the end of this OS thread will detach it; see start.cc.
  bool detaches_at_exit = false;

  // Whether this thread, attached and not started by the runtime, was given
  // another timer slack, and the one of its own, in ns; see
  // thread/timer_slack.h.
  bool slack_borrowed = false;
  uint64_t own_slack = 0;

  // How late this thread's timed waits end; thread/sleep.cc.
  SpinTails spin_tails;

  // Non-null on a VM thread: the engine that it serves (safepoint/vm_thread.h).
  const void* vm_thread_of = nullptr;
};

// Initial-exec: one instruction, no call into the loader. A thread that is just
// being born may not take the loader's locks (incidents A3, D9).
extern constinit thread_local TlsBlock tls_block
    __attribute__((tls_model("initial-exec")));

// Whether the calling thread may wait: it is in a safe state, or unattached.
inline bool CurrentThreadIsSafe() {
  // relaxed (M26): the owner reads its own word.
  return tls_block.state == nullptr ||
         IsSafe(tls_block.state->load(std::memory_order_relaxed));
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_BASE_TLS_BLOCK_H_
