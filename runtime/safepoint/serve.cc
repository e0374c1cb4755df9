#include "runtime/safepoint/serve.h"

#include <atomic>

#include "runtime/thread/fence.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/transition.h"

namespace stillpoint {

void ServePoll(Thread& thread) {
  while (true) {
    // Only the owner disarms, and only with a read-modify-write: a plain store
    // could wipe out a bit that was set meanwhile without anybody looking at
    // its cause. First the disarming, then a full barrier, then the look at
    // every cause: a bit that is wiped out here was set after the stop word,
    // which the wait then finds odd. (The other way round, a stopper that
    // begins between the look and the exchange loses its "waited" bit and is
    // not woken by the step back below.) No other cause needs serving: "waited"
    // means that somebody wanted this thread to be safe, which it is.
    // acquire (M10): with a bit comes what was written before it was set.
    thread.poll_word().exchange(0, std::memory_order_acq_rel);
    // On x86 the exchange is that barrier already; on Arm it is not.
    FullFence();
    WaitWhileStopOn(thread.control());
    if (TryEnterManaged(thread)) return;
    NoteArrival(thread);
    StepBack(thread);
  }
}

}  // namespace stillpoint
