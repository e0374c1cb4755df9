#include "runtime/safepoint/serve.h"

#include <atomic>

#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/transition.h"

namespace stillpoint {

void ServePoll(Thread& thread) {
  while (true) {
    WaitWhileStopOn(thread.control());
    // Only the owner disarms, and only with a read-modify-write: a plain store
    // could sink below the look at the causes and wipe out a bit that was set
    // meanwhile. What was set before the exchange is looked at after it: the
    // stop word, by TryEnterManaged. No other cause needs serving: "waited"
    // means that somebody wanted this thread to be safe, which it is.
    thread.poll_word().exchange(0, std::memory_order_acq_rel);
    if (TryEnterManaged(thread)) return;
    NoteArrival(thread);
    StepBack(thread);
  }
}

}  // namespace stillpoint
