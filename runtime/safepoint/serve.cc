#include "runtime/safepoint/serve.h"

#include <atomic>

#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/transition.h"

namespace stillpoint {

void ServePoll(Thread& thread) {
  while (true) {
    // Only the owner disarms, and only with a read-modify-write: a plain store
    // could sink below the look at the causes and wipe out a bit that was set
    // meanwhile. First the disarming, then the look at every cause: a bit that
    // is wiped out here was set after the stop word, which the wait then finds
    // odd. (The other way round, a stopper that begins between the look and the
    // exchange loses its "waited" bit and is not woken by the step back below.)
    // No other cause needs serving: "waited" means that somebody wanted this
    // thread to be safe, which it is.
    thread.poll_word().exchange(0, std::memory_order_acq_rel);
    WaitWhileStopOn(thread.control());
    if (TryEnterManaged(thread)) return;
    NoteArrival(thread);
    StepBack(thread);
  }
}

}  // namespace stillpoint
