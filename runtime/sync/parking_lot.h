// Where threads wait at an address: the queues of all mutexes, condition
// variables, semaphores and wait groups, which so need no room for a queue of
// their own, and may be gone when the wake-up comes. Internal.

#ifndef STILLPOINT_RUNTIME_SYNC_PARKING_LOT_H_
#define STILLPOINT_RUNTIME_SYNC_PARKING_LOT_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "runtime/sync/waiter.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

// Queues by address, in a fixed table of buckets with a lock each. The table is
// one for the process, since a mutex belongs to no runtime; it is plain data
// that needs no code to begin or to end.
//
// Under the lock, which is a leaf and inside a NoSafepointScope, the callbacks
// decide and change the words of the object. A thread that is not in a queue
// any more is done, or has seen under the lock that its wait is over.
class ParkingLot {
 public:
  ParkingLot() = delete;

  enum class Place { kBack, kFront };

  // `kNotParked`: `validate` said no, nothing was done.
  enum class Result { kNotParked, kUnparked, kInterrupted, kTimedOut };

  static void DoNothing() {}

  // What the waiter does at which point. All may be called in Managed.
  struct Parking {
    // Under the lock, before it is in the queue: whether to wait at all.
    absl::FunctionRef<bool()> validate;
    // With no lock, after it is in the queue.
    absl::FunctionRef<void()> before_wait = DoNothing;
    // Under the lock, when it has left the queue because of an interrupt or a
    // deadline. `more`: whether others wait at the address.
    absl::FunctionRef<void(bool more)> given_up;
  };

  // The calling thread, whose Thread is `current` (null: unattached), waits at
  // `what.object()`. A Managed thread is Blocked meanwhile. An interrupt that
  // ends the wait is taken.
  static Result Park(Thread* current, WaitingFor what, Place place,
                     const WaitLimits& limits, const Parking& parking);

  // Lets go of the first thread that waits at `address`, if any. `dequeued` is
  // called under the lock, before the thread can notice: `found` says whether
  // there was one, `more` whether others wait still. Afterwards nothing at
  // `address` is touched.
  static void UnparkOne(
      const void* address,
      absl::FunctionRef<void(bool found, bool more)> dequeued);

  // Lets go of all that wait at `address` at one moment, in their order.
  // `begin` is called under the lock at that moment, and says whether to go on.
  // Afterwards nothing at `address` is touched.
  static void UnparkAll(const void* address, absl::FunctionRef<bool()> begin);

  // Calls `look` under the lock if any thread waits at `what.object()` for that
  // kind of thing, which therefore is alive. False if none does.
  static bool WhileAwaited(WaitingFor what, absl::FunctionRef<void()> look);

  // How many threads wait at `address` at this moment.
  static size_t CountAt(const void* address);

  // In the child of a fork, by its only thread: nobody waits, every lock is
  // free.
  static void ResetInForkedChild();
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_SYNC_PARKING_LOT_H_
