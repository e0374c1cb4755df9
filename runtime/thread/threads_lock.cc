#include "runtime/thread/threads_lock.h"

#include <string_view>

#include "runtime/lock/held_locks.h"
#include "runtime/thread/stop_control.h"

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

void ThreadsLock::LockForStop() {
  if (protocol_ == StartProtocol::kOutside) {
    // Still held by rank: in a stop the VM thread may take inner locks only.
    CheckMayWaitFor(threads_lock_);
    PushHeldLock(threads_lock_);
  } else {
    threads_lock_.Lock();
  }
}

void ThreadsLock::UnlockAfterStop() {
  if (protocol_ == StartProtocol::kOutside) {
    PopHeldLock(threads_lock_);
  } else {
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
      lock_.threads_lock_.Unlock();
      lock_.thread_start_lock_.Unlock();
      break;
    case StartProtocol::kUnderThreadsLock:
      lock_.threads_lock_.Unlock();
      break;
    case StartProtocol::kOutside:
      break;
  }
}

}  // namespace stillpoint
