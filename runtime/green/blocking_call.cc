#include "runtime/green/blocking_call.h"

#include <atomic>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/thread_state.h"
#include "runtime/green/carrier.h"
#include "runtime/green/green_thread.h"
#include "runtime/green/helper_pool.h"
#include "runtime/green/scheduler.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/wait_check.h"
#include "runtime/thread/wait_word.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

namespace blocking_call_internal {

void Run(absl::FunctionRef<void()> call) {
  if (absl::Status allowed = CheckMayWait("BlockingCall"); !allowed.ok()) {
    Die({std::string(allowed.message())});
  }
  Thread* const current = Thread::Current();
  const WaitScope waiting(current, WaitingFor(WaitKind::kBlockingCall));
  GreenThread* const green = GreenThread::Current();
  if (green == nullptr) {
    call();
    return;
  }
  WaitWord& word = current->record().wait;
  HelperPool::Job job{call, &word};
  if (!green->home->scheduler().helpers().Submit(job)) {
    call();
    return;
  }
  // acquire (M88): with it what the call has done. The event comes after it, or
  // is left over from an earlier wait.
  while (!job.done.load(std::memory_order_acquire)) {
    word.Wait(WaitWord::kEvent, Deadline::Infinite());
    word.Take(WaitWord::kEvent);
  }
}

}  // namespace blocking_call_internal

}  // namespace stillpoint
