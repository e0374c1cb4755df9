#include "runtime/safepoint/poll.h"

#include <atomic>
#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/base/tls_block.h"
#include "runtime/safepoint/serve.h"
#include "runtime/thread/saved_context.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/suspension.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/transition.h"

namespace stillpoint {
namespace {

// Takes the bits of the poll word if there are none but those of handshakes. (A
// stopper that waits for this thread has set "safepoint" before "waited", and
// that is there until the thread leaves Managed.)
bool TakeHandshakeBits(Thread& thread) {
  constexpr uint32_t kOurs = kPollHandshake | kPollWaited;
  // relaxed (M60): a guess, which the exchange checks.
  uint32_t bits = thread.poll_word().load(std::memory_order_relaxed);
  // acquire (M60): with the bit comes what was queued before it was set.
  return (bits & kOurs) != 0 && (bits & ~kOurs) == 0 &&
         thread.poll_word().compare_exchange_strong(
             bits, 0, std::memory_order_acquire, std::memory_order_relaxed);
}

}  // namespace

void PollSlow(Thread& thread) {
  STILLPOINT_CHECK(tls_block.handshake == nullptr, "Poll inside handshake ",
                   *tls_block.handshake,
                   ": a closure may neither poll nor wait");
  transition_internal::CheckHoldsNoLock();
  if (TakeHandshakeBits(thread)) {
    // Nobody else wants anything: there is no need to leave Managed. A closure
    // may walk this thread's stack.
    SaveContext(thread.record().saved);
    const bool served = thread.record().handshakes.RunAll(thread);
    STILLPOINT_CHECK(served, "a proxy runs a handshake of a Managed thread");
    // The next handshake waits for the next poll. Leaving Managed for it would
    // let a requester that asks again and again be the proxy each time, and
    // keep this thread out. relaxed (M25): as in Poll.
    if ((thread.poll_word().load(std::memory_order_relaxed) & kPollSafepoint) ==
            0 &&
        !IsSuspended(thread)) {
      return;
    }
  }
  NoteArrival(thread);
  LeaveManaged(thread, ThreadState::kBlocked);
  ServePoll(thread);
  // No tail call: this frame holds the registers of the polling one, and has to
  // stay where the saved context says.
  asm volatile("" : : : "memory");
}

}  // namespace stillpoint
