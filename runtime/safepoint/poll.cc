#include "runtime/safepoint/poll.h"

#include "runtime/safepoint/serve.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/transition.h"

namespace stillpoint {

void PollSlow(Thread& thread) {
  NoteArrival(thread);
  LeaveManaged(thread, ThreadState::kBlocked);
  ServePoll(thread);
}

}  // namespace stillpoint
