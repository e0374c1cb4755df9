// The record of a green thread. What only its owner and its carrier need lies
// at the top of its stack (green/green_thread.h), so that a million parked ones
// stay small.

#ifndef STILLPOINT_RUNTIME_THREAD_GREEN_RECORD_H_
#define STILLPOINT_RUNTIME_THREAD_GREEN_RECORD_H_

#include <atomic>
#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/base/thread_state.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"

namespace stillpoint {

// What a green thread has used. Written by its carrier at mount and unmount,
// read by anybody who has pinned the record; the thread's last values stay
// until the slot is given to another one. Stores are release, loads acquire
// (M80): who sees a value of a later thread of the slot sees the later
// generation, too.
struct GreenAccount {
  // Odd while a carrier changes the fields below; a reader looks again. +2 at
  // each mount, and at each unmount.
  std::atomic<uint64_t> sequence{0};

  // Nanoseconds of CPU time up to the last unmount, and what the carrier's own
  // clock showed at the mount; -1 while it is not mounted.
  std::atomic<int64_t> charged{0};
  std::atomic<int64_t> mounted_at{-1};

  // The largest total that anybody has been told.
  std::atomic<int64_t> seen{0};

  // How long it was ready and had to wait for its carrier, in ticks
  // (GreenTicks).
  std::atomic<uint64_t> queued_ticks{0};

  // When it was started, and for how long it lived, once it has ended, in ticks
  // (GreenTicks); the generation whose last values these are.
  std::atomic<uint64_t> began{0};
  std::atomic<uint64_t> elapsed{0};
  // (its lower half; with the generation looked at besides, that is enough).
  std::atomic<uint32_t> final_of{0};

  // The carrier that it runs on or ran on last: its index + 1; 0 before.
  // relaxed (M86): a number, for reports.
  std::atomic<uint32_t> home{0};
};

struct GreenRecord : ThreadRecord {
  GreenRecord() : ThreadRecord(ThreadKind::kGreen) {}

  GreenAccount account;
};

// The record of a thread that is known to be green.
inline GreenRecord& GreenRecordOf(const Thread& thread) {
  STILLPOINT_DCHECK(thread.record().kind == ThreadKind::kGreen, "thread ",
                    thread.record().name, " is not green");
  return static_cast<GreenRecord&>(thread.record());
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_GREEN_RECORD_H_
