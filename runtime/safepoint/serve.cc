#include "runtime/safepoint/serve.h"

#include <atomic>
#include <cstdint>

#include "runtime/base/clock.h"
#include "runtime/base/thread_state.h"
#include "runtime/thread/fence.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/suspension.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/transition.h"

namespace stillpoint {
namespace {

// As WaitWhileStopOn, but false at once on a closed runtime.
bool WaitWhileStopOnUnlessClosed(StopControl& control) {
  // acquire (M9, M11): as there, and `closed` comes with its odd value.
  while (StopControl::StopIsOn(
      control.stop_word.load(std::memory_order_acquire))) {
    if (control.closed.load()) return false;
    WaitForEndOfPresentStop(control);
  }
  return true;
}

// On a closed runtime: a green thread stays where it is, its carrier goes on
// with others, which may be on their way out.
[[noreturn]] void ParkForEver(Thread& thread) {
  while (true) thread.record().wait.Wait(0, Deadline::Infinite());
}

enum class IfClosed { kPark, kGiveUp };

bool Serve(Thread& thread, IfClosed if_closed) {
  HandshakeQueue& handshakes = thread.record().handshakes;
  uint32_t causes = 0;
  while (true) {
    // Only the owner disarms, and only with a read-modify-write: a plain store
    // could wipe out a bit that was set meanwhile without anybody looking at
    // its cause. First the disarming, then a full barrier, then the look at
    // every cause: a bit that is wiped out here was set after the stop word,
    // which the wait then finds odd. (The other way round, a stopper that
    // begins between the look and the exchange loses its "waited" bit and is
    // not woken by the step back below.) A handshake that goes with a bit that
    // is wiped out here was queued before it was set, and is remembered until
    // it is served. "Waited" needs no serving: it means that somebody wanted
    // this thread to be safe, which it is.
    // acquire (M10, M60): with a bit comes what was written before it was set.
    causes |= thread.poll_word().exchange(0, std::memory_order_acq_rel);
    // On x86 the exchange is that barrier already; on Arm it is not.
    FullFence();
    if (if_closed == IfClosed::kPark && thread.kind() == ThreadKind::kNative) {
      WaitWhileStopOn(thread.control());
    } else if (!WaitWhileStopOnUnlessClosed(thread.control())) {
      if (if_closed == IfClosed::kPark) ParkForEver(thread);
      return false;
    }
    if (!TryEnterManaged(thread)) {
      NoteArrival(thread);
      StepBack(thread);
      // Armed again; proxies are faster than this thread. Now they wait.
      if ((causes & kPollHandshake) != 0) handshakes.TakeTurn();
      continue;
    }
    // In Managed, so that no stop is complete while a closure runs, and before
    // any managed code does. The context is that of the way out, still.
    const bool served =
        (causes & kPollHandshake) == 0 || handshakes.RunAll(thread);
    // After the closures. No lock is held on the way into Managed (I4), and so
    // none in this wait.
    if (served && !IsSuspended(thread)) {
      // The context that it publishes is that of a frame further in.
      if ((causes & kPollYield) != 0 && if_closed == IfClosed::kPark &&
          thread.kind() == ThreadKind::kGreen) [[unlikely]] {
        thread.control().yield_slice(thread);
      }
      return true;
    }
    NoteArrival(thread);
    StepBack(thread);
    if (served) {
      AwaitResume(thread);
    } else {
      handshakes.AwaitClaim();  // a proxy is at work
    }
  }
}

}  // namespace

void ServePoll(Thread& thread) { Serve(thread, IfClosed::kPark); }

bool EnterManagedUnlessClosed(Thread& thread) {
  if (TryEnterManaged(thread)) return true;
  NoteArrival(thread);
  StepBack(thread);
  return Serve(thread, IfClosed::kGiveUp);
}

}  // namespace stillpoint
