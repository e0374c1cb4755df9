#include "runtime/thread/threads_lock.h"

#include <atomic>
#include <string_view>

#include "runtime/base/clock.h"
#include "runtime/lock/held_locks.h"
#include "runtime/os/os_thread.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"

namespace stillpoint {

std::string_view StartProtocolName(StartProtocol protocol) {
  switch (protocol) {
    case StartProtocol::kUnderThreadsLock:
      return "under_lock";
    case StartProtocol::kUnderThreadStartLock:
      return "start_lock";
    case StartProtocol::kOutside:
      return "outside";
  }
  return "?";
}

ThreadsLock::ThreadsLock(StartProtocol protocol, StopControl& control)
    : protocol_(protocol), control_(control) {}

void ThreadsLock::LockStartsForFork() {
  if (protocol_ == StartProtocol::kUnderThreadStartLock) {
    thread_start_lock_.Lock();
  }
}

void ThreadsLock::UnlockStartsAfterFork() {
  if (protocol_ == StartProtocol::kUnderThreadStartLock) {
    thread_start_lock_.Unlock();
  }
}

bool ThreadsLock::TryLockForStop(Deadline deadline) {
  if (protocol_ == StartProtocol::kOutside) {
    // Still held by rank: in a stop the VM thread may take inner locks only.
    CheckMayWaitFor(threads_lock_);
    PushHeldLock(threads_lock_);
    return true;
  }
  if (!threads_lock_.LockUntil(deadline)) return false;
  NoteHeld();
  return true;
}

void ThreadsLock::NoteHeld() {
  // relaxed (M28): for a message, which says "about".
  const Thread* current = Thread::Current();
  held_since_.store(MonotonicNanos(), std::memory_order_relaxed);
  holder_tid_.store(current != nullptr ? current->tid() : CurrentTid(),
                    std::memory_order_relaxed);
}

void ThreadsLock::NoteFree() {
  // relaxed (M28): as above.
  holder_tid_.store(0, std::memory_order_relaxed);
}

ThreadsLockHolder ThreadsLock::holder() const {
  // relaxed (M28): as above; the two may be of different holders.
  return {holder_tid_.load(std::memory_order_relaxed),
          held_since_.load(std::memory_order_relaxed)};
}

void ThreadsLock::UnlockAfterStop() {
  if (protocol_ == StartProtocol::kOutside) {
    PopHeldLock(threads_lock_);
  } else {
    NoteFree();
    threads_lock_.Unlock();
  }
}

MembershipChange::MembershipChange(ThreadsLock& lock, Kind kind) : lock_(lock) {
  switch (lock_.protocol_) {
    case StartProtocol::kUnderThreadStartLock:
      lock_.thread_start_lock_.Lock();
      [[fallthrough]];
    case StartProtocol::kUnderThreadsLock:
      lock_.threads_lock_.Lock();
      lock_.NoteHeld();
      break;
    case StartProtocol::kOutside:
      CheckMayWaitFor(lock_.threads_lock_);
      if (kind == kJoin) WaitForEndOfPresentStop(lock_.control_);
      break;
  }
}

MembershipChange::~MembershipChange() {
  switch (lock_.protocol_) {
    case StartProtocol::kUnderThreadStartLock:
      lock_.NoteFree();
      lock_.threads_lock_.Unlock();
      lock_.thread_start_lock_.Unlock();
      break;
    case StartProtocol::kUnderThreadsLock:
      lock_.NoteFree();
      lock_.threads_lock_.Unlock();
      break;
    case StartProtocol::kOutside:
      break;
  }
}

}  // namespace stillpoint
