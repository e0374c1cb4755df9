#include "runtime/green/yield.h"

#include <sched.h>

#include <string>

#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/base/thread_state.h"
#include "runtime/base/tls_block.h"
#include "runtime/green/carrier.h"
#include "runtime/green/green_thread.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/transition.h"
#include "runtime/thread/wait_check.h"

namespace stillpoint {
namespace {

[[noreturn]] [[gnu::noinline]] void DieMayNotYield() {
  const absl::Status why = CheckMayWait("Yield");
  Die({std::string(why.message())});
}

}  // namespace

void Yield() {
  if (tls_block.held_count != 0 || tls_block.no_safepoint_depth != 0 ||
      tls_block.handshake != nullptr || tls_block.vm_thread_of != nullptr)
      [[unlikely]] {
    DieMayNotYield();
  }
  GreenThread* const self = GreenThread::Current();
  if (self == nullptr) {
    sched_yield();
    return;
  }
  // From here on nothing that is thread-local: it may go on elsewhere.
  Thread& thread = self->line;
  if (thread.state() != ThreadState::kManaged) {
    self->home->Yield(*self);
    return;
  }
  LeaveManaged(thread, ThreadState::kBlocked, CpuClockBase::kKeep);
  self->home->Yield(*self);
  EnterManaged(thread);
}

}  // namespace stillpoint
