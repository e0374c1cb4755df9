// All of Stillpoint's public API.
//
// In the order in which an embedder meets it:
//   options.h              Options: in code, from a string, from the
//                          environment
//   runtime.h              Runtime: create, start and attach threads, run
//                          VM operations and handshakes, shut down
//   thread/thread.h        Thread: what a thread knows of itself
//   thread/scopes.h        ManagedScope, NativeScope, BlockedScope,
//                          NoSafepointScope
//   safepoint/poll.h       Poll
//   safepoint/world.h      World: the stopped threads, for a collector
//   thread/park.h          Park; ThreadHandle::Unpark
//   green/yield.h          Yield
//   green/blocking_call.h  BlockingCall
//   thread/sleep.h         Sleep, SleepPrecise
//   thread/thread_handle.h ThreadHandle: join, interrupt
//   thread/cpu_times.h     CPU time of threads and of the process
//   thread/timer_slack.h   how exact timed waits are
//   sync/mutex.h           Mutex, MutexLock
//   sync/cond_var.h        CondVar
//   sync/channel.h         Channel
//   sync/select.h          Select, TrySelect: several channels
//   sync/semaphore.h       Semaphore
//   sync/wait_group.h      WaitGroup
//   lock/ranked_mutex.h    RankedMutex
//   base/event_sink.h      EventSink, SafepointRecord

#ifndef STILLPOINT_RUNTIME_STILLPOINT_H_
#define STILLPOINT_RUNTIME_STILLPOINT_H_

// IWYU pragma: begin_exports
#include "runtime/base/clock.h"
#include "runtime/base/event_sink.h"
#include "runtime/base/thread_state.h"
#include "runtime/green/blocking_call.h"
#include "runtime/green/yield.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/options.h"
#include "runtime/runtime.h"
#include "runtime/safepoint/poll.h"
#include "runtime/safepoint/vm_operation.h"
#include "runtime/safepoint/world.h"
#include "runtime/sync/channel.h"
#include "runtime/sync/cond_var.h"
#include "runtime/sync/mutex.h"
#include "runtime/sync/select.h"
#include "runtime/sync/semaphore.h"
#include "runtime/sync/wait_group.h"
#include "runtime/thread/cpu_times.h"
#include "runtime/thread/handshake_queue.h"
#include "runtime/thread/interrupt.h"
#include "runtime/thread/park.h"
#include "runtime/thread/scopes.h"
#include "runtime/thread/sleep.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_handle.h"
#include "runtime/thread/thread_local_slot.h"
#include "runtime/thread/thread_snapshot.h"
#include "runtime/thread/timer_slack.h"
#include "runtime/thread/waiting_for.h"
// IWYU pragma: end_exports

#endif  // STILLPOINT_RUNTIME_STILLPOINT_H_
