// Scopes for the states of the calling thread. Each ends where it began, and
// may wait at its end for a stop to be over.
//
//   Native thread:   ManagedScope  -> may touch managed data, must poll
//   Managed thread:  NativeScope   -> foreign code, system calls; it touches
//                                     no managed data
//                    BlockedScope  -> the same for waiting
//
// Debug builds die with a sentence on a scope that does not fit the state, and
// on code inside one that returns in another state.

#ifndef STILLPOINT_RUNTIME_THREAD_SCOPES_H_
#define STILLPOINT_RUNTIME_THREAD_SCOPES_H_

#include <atomic>

#include "runtime/base/check.h"
#include "runtime/base/thread_state.h"
#include "runtime/base/tls_block.h"
#include "runtime/os/fast_cpu_clock.h"
#include "runtime/thread/saved_context.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"
#include "runtime/thread/transition.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

namespace scopes_internal {

inline void DCheckState(const Thread& thread, ThreadState wanted,
                        const char* what) {
  STILLPOINT_DCHECK(&thread == Thread::Current(), what,
                    " is used with another thread's Thread: scopes are for "
                    "the calling thread");
  STILLPOINT_DCHECK(thread.state() == wanted, what, " needs a thread in ",
                    ThreadStateName(wanted), ", but it is in ",
                    ThreadStateName(thread.state()));
  STILLPOINT_DCHECK(
      tls_block.no_safepoint_depth == 0, what,
      " inside a NoSafepointScope: the thread may not stop there");
}

// Managed to `safe`, and back.
template <ThreadState safe>
class SafeScope {
 public:
  SafeScope(const SafeScope&) = delete;
  SafeScope& operator=(const SafeScope&) = delete;

 protected:
  [[gnu::always_inline]] SafeScope(Thread& thread, const char* what)
      : thread_(thread) {
    DCheckState(thread, ThreadState::kManaged, what);
    LeaveManaged(thread, safe);
  }
  [[gnu::always_inline]] void Leave(const char* what) {
    DCheckState(thread_, safe, what);
    EnterManaged(thread_);
  }

 private:
  Thread& thread_;
};

}  // namespace scopes_internal

// Managed -> Native -> Managed: for a call into code that touches no managed
// data. The world may stop and go on meanwhile.
class NativeScope : scopes_internal::SafeScope<ThreadState::kNative> {
 public:
  [[gnu::always_inline]] explicit NativeScope(
      Thread& thread = Thread::CurrentOrDie())
      : SafeScope(thread, "NativeScope") {}
  [[gnu::always_inline]] ~NativeScope() { Leave("the end of a NativeScope"); }
};

// Managed -> Blocked -> Managed: the same for a wait, which dumps then show.
class BlockedScope : scopes_internal::SafeScope<ThreadState::kBlocked> {
 public:
  [[gnu::always_inline]] explicit BlockedScope(
      Thread& thread = Thread::CurrentOrDie())
      : SafeScope(thread, "BlockedScope") {}
  [[gnu::always_inline]] ~BlockedScope() { Leave("the end of a BlockedScope"); }
};

// Native -> Managed -> Native. In a thread that is in Managed already it does
// nothing, so that a callback may come from either side.
class ManagedScope {
 public:
  [[gnu::always_inline]] explicit ManagedScope(
      Thread& thread = Thread::CurrentOrDie())
      : thread_(thread), entered_(!InManaged(thread)) {
    if (!entered_) return;
    scopes_internal::DCheckState(thread, ThreadState::kNative, "ManagedScope");
    outer_ = thread.record().saved;
    EnterManaged(thread);
  }
  [[gnu::always_inline]] ~ManagedScope() {
    scopes_internal::DCheckState(thread_, ThreadState::kManaged,
                                 "the end of a ManagedScope");
    if (entered_) ReturnToNative(thread_, outer_);
  }
  ManagedScope(const ManagedScope&) = delete;
  ManagedScope& operator=(const ManagedScope&) = delete;

 private:
  static bool InManaged(Thread& thread) {
    // relaxed (M26): the owner reads its own word.
    return thread.state_word().load(std::memory_order_relaxed) ==
           ThreadState::kManaged;
  }

  Thread& thread_;
  const bool entered_;
  // Of the Managed frames further out, which called the native code that this
  // is a visit from.
  SavedContext outer_;
};

// For the waits of the runtime itself: the calling thread is Blocked inside,
// whatever it was, and again what it was afterwards. `thread` may be null (an
// unattached thread), which makes it a no-op. `what` is what Thread::
// waiting_for() says meanwhile.
class WaitScope {
 public:
  [[gnu::always_inline]] explicit WaitScope(Thread* thread,
                                            WaitingFor what = {})
      : thread_(thread) {
    if (thread_ == nullptr) return;
    before_ = thread_->state();
    thread_->record().waiting_for.Set(what);
    if (before_ == ThreadState::kManaged) {
      LeaveManaged(*thread_, ThreadState::kBlocked,
                   tls_block.blocker == nullptr ? CpuClockBase::kDrop
                                                : CpuClockBase::kKeep);
    } else {
      SetSafe(ThreadState::kBlocked);
    }
  }
  ~WaitScope() {
    if (thread_ == nullptr) return;
    // From here on it is a stop that it may wait for.
    thread_->record().waiting_for.Set(WaitingFor());
    if (before_ == ThreadState::kManaged) {
      EnterManaged(*thread_);
    } else {
      SetSafe(before_);
    }
  }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  void SetSafe(ThreadState to) {
    // release (M7): like every store of a state; safe to safe neither polls
    // nor needs an order of its own, since both sides count as stopped.
    thread_->state_word().store(to, std::memory_order_release);
    // It is about to wait, or did. (The carrier of a green thread does not.)
    if (tls_block.blocker == nullptr) thread_->cpu_clock().DropBase();
  }

  Thread* const thread_;
  ThreadState before_ = ThreadState::kNative;
};

// Inside it the thread may not stop: a poll, a wait or a transition is misuse
// and dies in debug builds; a request for a VM operation is refused in every
// build. For short regions that hold raw managed pointers or a lock taken by
// try. Nests. Managed or safe; needs no attached thread.
class NoSafepointScope {
 public:
  NoSafepointScope() { ++tls_block.no_safepoint_depth; }
  ~NoSafepointScope() { --tls_block.no_safepoint_depth; }
  NoSafepointScope(const NoSafepointScope&) = delete;
  NoSafepointScope& operator=(const NoSafepointScope&) = delete;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_SCOPES_H_
