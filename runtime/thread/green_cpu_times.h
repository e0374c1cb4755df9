// CPU time of green threads: what their carriers' clock shows between mount and
// unmount. Internal; see cpu_times.h.

#ifndef STILLPOINT_RUNTIME_THREAD_GREEN_CPU_TIMES_H_
#define STILLPOINT_RUNTIME_THREAD_GREEN_CPU_TIMES_H_

#include <atomic>
#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/os/cpu_clock.h"
#include "runtime/thread/cpu_times.h"
#include "runtime/thread/green_record.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"

namespace stillpoint {

// The scheduling of one green thread. A plain value.
struct GreenCounts {
  uint64_t switches = 0;     // how often it was given a carrier
  int64_t queued_nanos = 0;  // ready, but waiting for its carrier
};

// A time for differences only, in the unit that StopControl::ticks_multiplier
// says.
uint64_t GreenTicks(const StopControl& control);

// A new thread takes the slot: nobody else may look yet.
void BeginGreenAccount(Thread& thread);

// The carrier, at mount and unmount: its clock shows `carrier_nanos`. `ticks`
// it was ready before it was mounted. Returns what the carrier's readings lack
// to the thread's CPU time (Thread::cpu_offset).
inline int64_t ChargeMount(Thread& thread, int64_t carrier_nanos,
                           uint64_t ticks_queued);
inline void ChargeUnmount(Thread& thread, int64_t carrier_nanos);

// The thread itself, unmounted for the last time, before its generation ends:
// GreenTicks() was `ticks`.
void EndGreenAccount(Thread& thread, uint64_t ticks);

// The calling thread, which is green.
ThreadCpuTimes CurrentGreenCpuTimes(Thread& current);

// As ReadCpuTimes and ReadFinalCpuTimes; also in one: of a live thread that is
// mounted, what its carrier has used meanwhile is asked of the kernel.
absl::StatusOr<ThreadCpuTimes> ReadGreenCpuTimes(const Thread& thread,
                                                 uint64_t generation);

// Of the thread that is in the slot, or was last.
GreenCounts ReadGreenCounts(const Thread& thread);

// --- Each switch of green threads pays for these. ---

namespace green_account_internal {

// One writer: the carrier that mounts the thread or unmounts it. Its changes
// lie between an odd number and the next even one; four of those are one turn.
class Change {
 public:
  explicit Change(GreenAccount& account)
      : account_(account),
        // relaxed (M80): only carriers write it, and only one has the thread.
        sequence_(account.sequence.load(std::memory_order_relaxed)) {
    account_.sequence.store(sequence_ + 1, std::memory_order_relaxed);
  }
  ~Change() {
    // release (M80): who sees the even number sees what was written before.
    account_.sequence.store(sequence_ + 2, std::memory_order_release);
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  GreenAccount& account_;
  const uint64_t sequence_;
};

// One writer at a time.
template <typename T>
void Add(std::atomic<T>& to, T amount) {
  // relaxed, release (M80): see GreenAccount.
  to.store(to.load(std::memory_order_relaxed) + amount,
           std::memory_order_release);
}

}  // namespace green_account_internal

inline int64_t ChargeMount(Thread& thread, int64_t carrier_nanos,
                           uint64_t ticks_queued) {
  GreenAccount& account = GreenRecordOf(thread).account;
  const green_account_internal::Change change(account);
  // release (M80), here and below: after the odd number.
  account.mounted_at.store(carrier_nanos, std::memory_order_release);
  green_account_internal::Add(account.queued_ticks, ticks_queued);
  // relaxed (M80): the carrier's own.
  return account.charged.load(std::memory_order_relaxed) - carrier_nanos;
}

inline void ChargeUnmount(Thread& thread, int64_t carrier_nanos) {
  GreenAccount& account = GreenRecordOf(thread).account;
  const green_account_internal::Change change(account);
  // relaxed (M80): the carrier's own.
  green_account_internal::Add(
      account.charged,
      carrier_nanos - account.mounted_at.load(std::memory_order_relaxed));
  // release (M80): as above.
  account.mounted_at.store(-1, std::memory_order_release);
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_GREEN_CPU_TIMES_H_
