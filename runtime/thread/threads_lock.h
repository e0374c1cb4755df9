// Threads_lock, the optional ThreadStart_lock in front of it, and the small
// policy that makes the three start protocols.

#ifndef STILLPOINT_RUNTIME_THREAD_THREADS_LOCK_H_
#define STILLPOINT_RUNTIME_THREAD_THREADS_LOCK_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "runtime/base/clock.h"
#include "runtime/lock/held_locks.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/thread/stop_control.h"

namespace stillpoint {

// How a starting thread and the VM thread share Threads_lock.
enum class StartProtocol {
  // The OS thread is created and awaited while holding Threads_lock: HotSpot's
  // order. A storm of starts keeps the VM thread waiting (JDK-8340547: 14 s).
  kUnderThreadsLock,
  // The same behind ThreadStart_lock, so that one starter at a time competes
  // with the VM thread: the published cure.
  kUnderThreadStartLock,
  // The OS thread is created outside any lock. Registration is a few atomic
  // instructions that commit one by one, so there is nothing to wait for; who
  // finds a stop going on waits for its end, never for another one.
  kOutside,
};

std::string_view StartProtocolName(StartProtocol protocol);

// Who holds Threads_lock, and since when (MonotonicNanos). Zeros: nobody, or it
// changes hands.
struct ThreadsLockHolder {
  pid_t tid = 0;
  int64_t since = 0;
};

// Threads_lock. The VM thread holds it from first thing in a safepoint until
// the world resumes, in every protocol. In the first two it is a mutex that
// members take as well; in kOutside nobody but the VM thread takes it, and the
// odd stop word is what shows members that it is held.
class ThreadsLock {
 public:
  ThreadsLock(StartProtocol protocol, StopControl& control);

  StartProtocol protocol() const { return protocol_; }

  // Fork only, around LockForStop: keeps starters out of ThreadStart_lock too,
  // in the protocol that has it.
  void LockStartsForFork() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void UnlockStartsAfterFork() ABSL_NO_THREAD_SAFETY_ANALYSIS;

  // VM thread only.
  void LockForStop() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    TryLockForStop(Deadline::Infinite());
  }
  // False if it is not the caller's by the deadline.
  bool TryLockForStop(Deadline deadline) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  void UnlockAfterStop() ABSL_NO_THREAD_SAFETY_ANALYSIS;

  // A glance; any thread.
  ThreadsLockHolder holder() const;

  // Both locks, outermost first.
  std::array<RankedMutex*, 2> locks() {
    return {&thread_start_lock_, &threads_lock_};
  }

 private:
  friend class MembershipChange;

  // Around holding the mutex, in the protocols that have one.
  void NoteHeld();
  void NoteFree();

  const StartProtocol protocol_;
  StopControl& control_;
  RankedMutex thread_start_lock_{kThreadStartLockRank};
  RankedMutex threads_lock_{kThreadsLockRank};
  std::atomic<pid_t> holder_tid_{0};
  std::atomic<int64_t> held_since_{0};
};

// Brackets a start, exit, attach or detach: holds what the protocol says, or,
// in kOutside, has waited for the end of the present stop (who leaves waits in
// Registry::Leave, after it has said so). Safe states only; checks ranks like
// the lock itself in every protocol.
class MembershipChange {
 public:
  enum Kind { kJoin, kLeave };

  MembershipChange(ThreadsLock& lock, Kind kind) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  ~MembershipChange() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  MembershipChange(const MembershipChange&) = delete;
  MembershipChange& operator=(const MembershipChange&) = delete;

 private:
  ThreadsLock& lock_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_THREADS_LOCK_H_
