#include "runtime/sync/parking_lot.h"

#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/sync/waiter.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {
namespace {

// A thread in a queue. The first one of each address is in the list of its
// bucket, and knows the last one.
struct Parked : Waiter {
  Parked(Thread* current, WaitingFor what) : Waiter(current), what(what) {}

  const WaitingFor what;
  uint64_t ticket = 0;  // grows in a bucket
  Parked* next = nullptr;
  Parked* previous = nullptr;  // null: it is the first one

  // Of the first one only.
  Parked* last = nullptr;
  Parked* next_first = nullptr;  // of another address
};

struct Bucket {
  constexpr Bucket() : lock(kParkingLotLockRank) {}

  RankedMutex lock;
  Parked* firsts ABSL_GUARDED_BY(lock) = nullptr;
  uint64_t next_ticket ABSL_GUARDED_BY(lock) = 0;
};

// Many, since each holds the first waiters of all its addresses in one list: a
// million green threads, each at a mutex of its own, make that long. Pages of
// buckets that are not used cost nothing.
constexpr int kBucketBits = 13;
constinit Bucket buckets[size_t{1} << kBucketBits];

Bucket& BucketOf(const void* address) {
  // Fibonacci hashing: addresses differ in the low bits but for the lowest.
  const uint64_t hash =
      reinterpret_cast<uintptr_t>(address) * uint64_t{0x9e3779b97f4a7c15};
  return buckets[hash >> (64 - kBucketBits)];
}

// The link that leads to the first one at `address`, or to null.
Parked** FindFirst(Bucket& bucket, const void* address)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(bucket.lock) {
  Parked** link = &bucket.firsts;
  while (*link != nullptr && (*link)->what.object() != address) {
    link = &(*link)->next_first;
  }
  return link;
}

void Enqueue(Bucket& bucket, Parked& parked, ParkingLot::Place place)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(bucket.lock) {
  parked.ticket = bucket.next_ticket++;
  Parked** const link = FindFirst(bucket, parked.what.object());
  Parked* const first = *link;
  if (first == nullptr) {
    parked.last = &parked;
    *link = &parked;
  } else if (place == ParkingLot::Place::kBack) {
    parked.previous = first->last;
    first->last->next = &parked;
    first->last = &parked;
  } else {
    parked.next = first;
    parked.last = first->last;
    parked.next_first = first->next_first;
    first->previous = &parked;
    *link = &parked;
  }
}

void Dequeue(Bucket& bucket, Parked& parked)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(bucket.lock) {
  Parked** const link = FindFirst(bucket, parked.what.object());
  if (parked.previous == nullptr) {
    if (parked.next != nullptr) {
      parked.next->previous = nullptr;
      parked.next->last = parked.last;
      parked.next->next_first = parked.next_first;
      *link = parked.next;
    } else {
      *link = parked.next_first;
    }
    return;
  }
  parked.previous->next = parked.next;
  if (parked.next != nullptr) {
    parked.next->previous = parked.previous;
  } else {
    (*link)->last = parked.previous;
  }
}

// What comes before a wait and what comes after it are functions of their own,
// not inlined: a green thread may come back on another OS thread, and where the
// thread-local block is may not be carried across the wait.

[[gnu::noinline]] bool EnqueueIfValid(Bucket& bucket, Parked& parked,
                                      ParkingLot::Place place,
                                      absl::FunctionRef<bool()> validate) {
  const LeafLock lock(bucket.lock);
  if (!validate()) return false;
  Enqueue(bucket, parked, place);
  return true;
}

// False if it is done after all.
[[gnu::noinline]] bool GiveUp(Bucket& bucket, Parked& parked,
                              absl::FunctionRef<void(bool more)> given_up) {
  const LeafLock lock(bucket.lock);
  if (parked.done()) return false;
  Dequeue(bucket, parked);
  given_up(*FindFirst(bucket, parked.what.object()) != nullptr);
  return true;
}

}  // namespace

ParkingLot::Result ParkingLot::Park(Thread* current, WaitingFor what,
                                    Place place, const WaitLimits& limits,
                                    const Parking& parking) {
  Bucket& bucket = BucketOf(what.object());
  Parked parked(current, what);
  if (!EnqueueIfValid(bucket, parked, place, parking.validate)) {
    return Result::kNotParked;
  }
  parking.before_wait();
  const WaitResult result = parked.Wait(what, limits, bucket.lock);
  if (result == WaitResult::kDone ||
      !GiveUp(bucket, parked, parking.given_up)) {
    return Result::kUnparked;
  }
  if (result == WaitResult::kTimedOut) return Result::kTimedOut;
  parked.TakeInterrupt();
  return Result::kInterrupted;
}

void ParkingLot::UnparkOne(
    const void* address,
    absl::FunctionRef<void(bool found, bool more)> dequeued) {
  Bucket& bucket = BucketOf(address);
  WakeUp wake_up;
  {
    const LeafLock lock(bucket.lock);
    Parked* const first = *FindFirst(bucket, address);
    if (first == nullptr) {
      dequeued(false, false);
      return;
    }
    const bool more = first->next != nullptr;
    Dequeue(bucket, *first);
    dequeued(true, more);
    wake_up = first->Complete();
  }
  wake_up.Wake();
}

void ParkingLot::UnparkAll(const void* address,
                           absl::FunctionRef<bool()> begin) {
  // Woken in batches, each with no lock held.
  constexpr size_t kBatch = 16;
  Bucket& bucket = BucketOf(address);
  bool begun = false;
  uint64_t end_ticket = 0;
  WakeUp wake_ups[kBatch];
  size_t count;
  do {
    count = 0;
    {
      const LeafLock lock(bucket.lock);
      if (!begun) {
        begun = true;
        end_ticket = bucket.next_ticket;
        if (!begin()) return;
      }
      while (count < kBatch) {
        Parked* const first = *FindFirst(bucket, address);
        // Who comes later is behind.
        if (first == nullptr || first->ticket >= end_ticket) break;
        Dequeue(bucket, *first);
        wake_ups[count++] = first->Complete();
      }
    }
    for (size_t i = 0; i < count; ++i) wake_ups[i].Wake();
  } while (count == kBatch);
}

bool ParkingLot::WhileAwaited(WaitingFor what, absl::FunctionRef<void()> look) {
  Bucket& bucket = BucketOf(what.object());
  const LeafLock lock(bucket.lock);
  const Parked* const first = *FindFirst(bucket, what.object());
  if (first == nullptr || first->what != what) return false;
  look();
  return true;
}

size_t ParkingLot::CountAt(const void* address) {
  Bucket& bucket = BucketOf(address);
  const LeafLock lock(bucket.lock);
  size_t count = 0;
  for (const Parked* parked = *FindFirst(bucket, address); parked != nullptr;
       parked = parked->next) {
    ++count;
  }
  return count;
}

void ParkingLot::ResetInForkedChild() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (Bucket& bucket : buckets) {
    bucket.lock.ResetInForkedChild();
    bucket.firsts = nullptr;
  }
}

}  // namespace stillpoint
