// The one table of lock ranks. A thread that waits for a lock may hold only
// locks of smaller rank ("outer" locks). docs/lock_ranks.md explains the table
// and is tested against it.

#ifndef STILLPOINT_RUNTIME_LOCK_LOCK_RANK_H_
#define STILLPOINT_RUNTIME_LOCK_LOCK_RANK_H_

#include <array>
#include <string_view>

namespace stillpoint {

struct LockRank {
  std::string_view name;
  int rank;
  std::string_view purpose;

  // A leaf is held for a few instructions, and whoever holds one waits for
  // nothing and changes no state. So it may be waited for in Managed, too: that
  // delays a stop by no more than the holder's next few instructions.
  bool leaf = false;
};

inline constexpr LockRank kThreadStartLockRank{
    "ThreadStart_lock", 100,
    "lets one starting, exiting, attaching or detaching thread at a time "
    "compete with the VM thread for Threads_lock"};
inline constexpr LockRank kSchedulerLockRank{
    "Scheduler_lock", 120, "held while carriers of green threads are started"};
inline constexpr LockRank kStopperLockRank{
    "Stopper_lock", 150,
    "held by whoever runs VM operations: the VM thread, or a requester that "
    "found it idle"};
inline constexpr LockRank kThreadsLockRank{
    "Threads_lock", 200,
    "guards membership; the VM thread holds it from first thing in a "
    "safepoint until the world resumes"};
inline constexpr LockRank kOperationQueueLockRank{
    "OperationQueue_lock", 300, "guards the queue of VM operations"};
inline constexpr LockRank kJoinLockRank{
    "Join_lock", 400,
    "one per thread: guards the list of threads that wait for its end"};
inline constexpr LockRank kHandshakeLockRank{
    "Handshake_lock", 450,
    "one per thread, a leaf: guards the handshakes that others ask of it",
    /*leaf=*/true};
inline constexpr LockRank kSuspendLockRank{
    "Suspend_lock", 455,
    "a leaf: orders suspensions, so that of two threads that suspend each "
    "other one is first",
    /*leaf=*/true};
inline constexpr LockRank kParkingLotLockRank{
    "ParkingLot_lock", 460,
    "one per bucket of the parking lot, a leaf: guards the threads that wait "
    "at mutexes, condition variables, semaphores and wait groups",
    /*leaf=*/true};
inline constexpr LockRank kChannelLockRank{
    "Channel_lock", 470,
    "one per channel or for a few, a leaf: guards their values and the threads "
    "that wait at them",
    /*leaf=*/true};
inline constexpr LockRank kStackPoolLockRank{
    "StackPool_lock", 475,
    "a leaf: guards the lists of stacks that no green thread has",
    /*leaf=*/true};
inline constexpr LockRank kHelperPoolLockRank{
    "HelperPool_lock", 478,
    "a leaf: guards the blocking calls that wait for an OS thread",
    /*leaf=*/true};
inline constexpr LockRank kGreenQueueLockRank{
    "GreenQueue_lock", 480,
    "a leaf: guards the green threads that are ready and belong to no carrier",
    /*leaf=*/true};
inline constexpr LockRank kTimerQueueLockRank{
    "TimerQueue_lock", 485,
    "one per carrier, a leaf: guards the deadlines of green threads",
    /*leaf=*/true};

inline constexpr LockRank kStopHistoryLockRank{
    "StopHistory_lock", 490, "a leaf: guards the list of the worst stops",
    /*leaf=*/true};

inline constexpr LockRank kSafepointLogLockRank{
    "SafepointLog_lock", 500,
    "guards the lines between a runtime and the thread that writes its "
    "safepoint log"};

// Every lock of the runtime, outermost first.
inline constexpr std::array kLockRanks = {
    kThreadStartLockRank,  kSchedulerLockRank,      kStopperLockRank,
    kThreadsLockRank,      kOperationQueueLockRank, kJoinLockRank,
    kHandshakeLockRank,    kSuspendLockRank,        kParkingLotLockRank,
    kChannelLockRank,      kStackPoolLockRank,      kHelperPoolLockRank,
    kGreenQueueLockRank,   kTimerQueueLockRank,     kStopHistoryLockRank,
    kSafepointLogLockRank,
};

// Embedders give their own RankedMutexes this rank or a larger one: such a lock
// may not be held while calling into the runtime for anything that waits.
inline constexpr int kFirstEmbedderRank = 1000;

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_LOCK_LOCK_RANK_H_
