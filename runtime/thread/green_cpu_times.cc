#include "runtime/thread/green_cpu_times.h"

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/os/cpu_clock.h"
#include "runtime/os/fast_cpu_clock.h"
#include "runtime/os/tsc.h"
#include "runtime/thread/fence.h"
#include "runtime/thread/green_record.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"

namespace stillpoint {

uint64_t GreenTicks(const StopControl& control) {
  return control.ticks_multiplier != 0
             ? ReadTsc()
             : static_cast<uint64_t>(MonotonicNanos());
}

namespace {

// The fields of an account that belong together.
struct Charged {
  int64_t nanos = 0;
  int64_t mounted_at = -1;
  pid_t carrier = 0;
};

Charged ReadCharged(const GreenRecord& record) {
  const GreenAccount& account = record.account;
  while (true) {
    // acquire (M80) throughout: nothing here is read before the first look, or
    // after the last one.
    const uint64_t before = account.sequence.load(std::memory_order_acquire);
    Charged charged;
    charged.nanos = account.charged.load(std::memory_order_acquire);
    charged.mounted_at = account.mounted_at.load(std::memory_order_acquire);
    charged.carrier = record.tid.load(std::memory_order_acquire);
    if ((before & 1) == 0 &&
        account.sequence.load(std::memory_order_acquire) == before) {
      return charged;
    }
  }
}

// No answer is smaller than an earlier one of somebody else's.
int64_t RaiseTo(std::atomic<int64_t>& seen, int64_t nanos) {
  // acquire, release (M80): see GreenAccount.
  int64_t before = seen.load(std::memory_order_acquire);
  while (before < nanos) {
    if (seen.compare_exchange_weak(before, nanos, std::memory_order_release,
                                   std::memory_order_acquire)) {
      return nanos;
    }
  }
  return before;
}

int64_t NanosOfTicks(const StopControl& control, uint64_t ticks) {
  if (control.ticks_multiplier == 0) return static_cast<int64_t>(ticks);
  return static_cast<int64_t>(
      (static_cast<unsigned __int128>(ticks) * control.ticks_multiplier) >>
      kTscShift);
}

ThreadCpuTimes TimesOf(int64_t total, int64_t elapsed) {
  ThreadCpuTimes times;
  times.total = times.user = times.raw_total = times.raw_user = total;
  times.elapsed = elapsed;
  return times;
}

}  // namespace

void BeginGreenAccount(Thread& thread) {
  GreenAccount& account = GreenRecordOf(thread).account;
  // release (M80): who sees these sees that the slot has changed hands.
  account.charged.store(0, std::memory_order_release);
  account.mounted_at.store(-1, std::memory_order_release);
  account.seen.store(0, std::memory_order_release);
  account.sequence.store(0, std::memory_order_release);
  account.queued_ticks.store(0, std::memory_order_release);
  account.began.store(GreenTicks(thread.control()), std::memory_order_release);
}

void EndGreenAccount(Thread& thread, uint64_t ticks) {
  GreenRecord& record = GreenRecordOf(thread);
  GreenAccount& account = record.account;
  // acquire, release (M80): before final_of, and that before the generation
  // ends.
  account.elapsed.store(ticks - account.began.load(std::memory_order_acquire),
                        std::memory_order_release);
  // relaxed (M14): constant while the thread lives.
  account.final_of.store(
      static_cast<uint32_t>(record.generation.load(std::memory_order_relaxed)),
      std::memory_order_release);
}

ThreadCpuTimes CurrentGreenCpuTimes(Thread& current) {
  GreenAccount& account = GreenRecordOf(current).account;
  const int64_t total = current.cpu_clock().Read() + current.cpu_offset();
  return TimesOf(
      RaiseTo(account.seen, total),
      // acquire (M80): see GreenAccount.
      NanosOfTicks(current.control(),
                   GreenTicks(current.control()) -
                       account.began.load(std::memory_order_acquire)));
}

absl::StatusOr<ThreadCpuTimes> ReadGreenCpuTimes(const Thread& thread,
                                                 uint64_t generation) {
  GreenRecord& record = GreenRecordOf(thread);
  GreenAccount& account = record.account;
  const Charged charged = ReadCharged(record);
  int64_t total = charged.nanos;
  if (charged.mounted_at >= 0 && charged.carrier != 0) {
    const std::optional<int64_t> now = ReadCpuClock(
        CpuClockId(CpuClockOf::kThread, charged.carrier, CpuClock::kTotal));
    if (now.has_value()) {
      total += std::max<int64_t>(0, *now - charged.mounted_at);
    }
    // What it has used since it was unmounted belongs to others.
    const Charged after = ReadCharged(record);
    if (after.mounted_at != charged.mounted_at) {
      total = std::min(total, after.nanos);
    }
  }
  const uint64_t now = GreenTicks(thread.control());
  // A full fence (M42): the look is not answered before the readings.
  FullFence();
  const uint64_t found = record.generation.load();
  // acquire (M80): see GreenAccount.
  if (found == generation) {
    return TimesOf(
        RaiseTo(account.seen, total),
        NanosOfTicks(thread.control(),
                     now - account.began.load(std::memory_order_acquire)));
  }
  if (found == generation + 1) {
    const bool left = account.final_of.load(std::memory_order_acquire) ==
                      static_cast<uint32_t>(generation);
    // acquire (M80): see GreenAccount.
    // At least what somebody was told, by the kernel's clock, of which the
    // carrier's own may be a little short.
    ThreadCpuTimes times =
        TimesOf(std::max(account.charged.load(std::memory_order_acquire),
                         account.seen.load(std::memory_order_acquire)),
                NanosOfTicks(thread.control(),
                             account.elapsed.load(std::memory_order_acquire)));
    times.is_final = true;
    // acquire (M80): the last look; it follows the loads above.
    if (record.generation.load(std::memory_order_acquire) == found) {
      if (left) return times;
      return absl::NotFoundError(
          "the green thread has left no CPU time: it never ran, or it is one "
          "of the parent's in the child of a fork");
    }
  }
  return absl::NotFoundError(
      "the green thread has ended, and another one has its place by now, so "
      "its last CPU time is gone: read it right after Join, or keep a "
      "ThreadSnapshot with the thread in it over its end");
}

GreenCounts ReadGreenCounts(const Thread& thread) {
  const GreenAccount& account = GreenRecordOf(thread).account;
  GreenCounts counts;
  // acquire (M80): see GreenAccount.
  // Mounted now, it has had half a turn more.
  counts.switches = (account.sequence.load(std::memory_order_acquire) + 3) / 4;
  counts.queued_nanos = NanosOfTicks(
      thread.control(), account.queued_ticks.load(std::memory_order_acquire));
  return counts;
}

}  // namespace stillpoint
