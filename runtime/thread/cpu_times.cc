#include "runtime/thread/cpu_times.h"

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/os/cpu_clock.h"
#include "runtime/thread/cpu_account.h"
#include "runtime/thread/fence.h"
#include "runtime/thread/green_cpu_times.h"
#include "runtime/thread/native_record.h"
#include "runtime/thread/thread_record.h"

namespace stillpoint {
namespace {

struct RawPair {
  int64_t total = 0;
  int64_t user = 0;
};

// User first: of a running thread it is then the older of the two, and rarely
// above the total.
std::optional<RawPair> ReadRawPair(CpuClockOf whose, pid_t id) {
  const std::optional<int64_t> user =
      ReadCpuClock(CpuClockId(whose, id, CpuClock::kUser));
  const std::optional<int64_t> total =
      ReadCpuClock(CpuClockId(whose, id, CpuClock::kTotal));
  if (!user.has_value() || !total.has_value()) return std::nullopt;
  return RawPair{*total, *user};
}

// `fast`: what the thread itself has been told.
void MakeConsistent(CpuTimes& times, const RawPair& raw, int64_t fast) {
  times.raw_total = raw.total;
  times.raw_user = raw.user;
  times.total = std::max(raw.total, fast);
  // Neither falls, so the smaller of the two does not fall either.
  times.user = std::min(raw.user, times.total);
}

absl::Status RefusedError() {
  return absl::UnavailableError(
      "the kernel refuses a CPU clock of the caller: a seccomp filter must "
      "allow clock_gettime(2) for this process");
}

// Whether the slot still has the thread, after something was read of it that is
// only good in that case. All that was read before was the thread's, then.
bool StillLives(const Thread& thread, uint64_t generation) {
  // A full fence (M42): the look is not answered before the kernel's reading.
  FullFence();
  return thread.record().generation.load() == generation;
}

// What `read` finds for the thread's kernel id, checked against its end; null
// means that it has ended, and left its last values.
template <typename Read>
auto ReadLive(Thread& thread, uint64_t generation, Read read)
    -> absl::StatusOr<decltype(read(pid_t{}))> {
  const pid_t tid = thread.tid();
  auto found = read(tid);
  if (!StillLives(thread, generation)) found.reset();
  if (!found.has_value() && StillLives(thread, generation)) {
    return absl::UnavailableError(absl::StrCat(
        "the kernel shows no CPU clock of thread ", tid,
        ": it has ended without leaving the runtime (let foreign threads "
        "detach, or end by returning), or a seccomp filter refuses "
        "clock_gettime(2)"));
  }
  return found;
}

}  // namespace

absl::StatusOr<int64_t> CurrentThreadCpuNanos(CpuClock clock) {
  const std::optional<int64_t> nanos =
      ReadCpuClock(CpuClockId(CpuClockOf::kThread, 0, clock));
  if (!nanos.has_value()) return RefusedError();
  return *nanos;
}

absl::StatusOr<ThreadCpuTimes> CurrentThreadCpuTimes() {
  Thread* current = Thread::Current();
  if (current != nullptr && current->kind() == ThreadKind::kGreen) {
    return CurrentGreenCpuTimes(*current);
  }
  const std::optional<RawPair> raw = ReadRawPair(CpuClockOf::kThread, 0);
  if (!raw.has_value()) return RefusedError();
  ThreadCpuTimes times;
  if (current == nullptr) {
    MakeConsistent(times, *raw, 0);
    return times;
  }
  CpuAccount& account = NativeRecordOf(*current).cpu;
  // Its clock will not fall below this pair either.
  MakeConsistent(times, *raw, account.fast.AtLeast(raw->total));
  // acquire (M41): as every access to the account.
  times.elapsed =
      MonotonicNanos() - account.began.load(std::memory_order_acquire);
  return times;
}

FastCpuClockStats CurrentThreadCpuClockStats() {
  Thread* current = Thread::Current();
  if (current == nullptr) return FastCpuClockStats();
  return current->cpu_clock().stats();
}

absl::StatusOr<int64_t> ProcessCpuNanos(CpuClock clock) {
  const std::optional<int64_t> nanos =
      ReadCpuClock(CpuClockId(CpuClockOf::kProcess, 0, clock));
  if (!nanos.has_value()) return RefusedError();
  return *nanos;
}

absl::StatusOr<CpuTimes> ProcessCpuTimes() {
  const std::optional<RawPair> raw = ReadRawPair(CpuClockOf::kProcess, 0);
  if (!raw.has_value()) return RefusedError();
  CpuTimes times;
  MakeConsistent(times, *raw, 0);
  return times;
}

absl::StatusOr<ThreadCpuTimes> ReadCpuTimes(Thread& thread,
                                            uint64_t generation) {
  if (thread.kind() == ThreadKind::kGreen) {
    return ReadGreenCpuTimes(thread, generation);
  }
  CpuAccount& account = NativeRecordOf(thread).cpu;
  absl::StatusOr<std::optional<RawPair>> raw =
      ReadLive(thread, generation, [](pid_t tid) -> std::optional<RawPair> {
        // Its OS thread has not said yet who it is: it has done nothing of
        // ours.
        if (tid == 0) return RawPair();
        return ReadRawPair(CpuClockOf::kThread, tid);
      });
  if (!raw.ok()) return raw.status();
  if (!raw->has_value()) return ReadFinalCpuTimes(thread, generation);
  // The slot is held, so these are the thread's even if it ends meanwhile.
  const RawPair seen = {account.raw_total.Raise((*raw)->total),
                        account.raw_user.Raise((*raw)->user)};
  ThreadCpuTimes times;
  MakeConsistent(times, seen, account.fast.last());
  // acquire (M41): as every access to the account.
  times.elapsed = account.elapsed.Raise(
      MonotonicNanos() - account.began.load(std::memory_order_acquire));
  return times;
}

absl::StatusOr<int64_t> ReadCpuNanos(Thread& thread, uint64_t generation,
                                     CpuClock clock) {
  if (thread.kind() == ThreadKind::kGreen) {
    const absl::StatusOr<ThreadCpuTimes> times =
        ReadGreenCpuTimes(thread, generation);
    if (!times.ok()) return times.status();
    return clock == CpuClock::kUser ? times->raw_user : times->raw_total;
  }
  CpuAccount& account = NativeRecordOf(thread).cpu;
  const bool user = clock == CpuClock::kUser;
  absl::StatusOr<std::optional<int64_t>> nanos =
      ReadLive(thread, generation, [&](pid_t tid) -> std::optional<int64_t> {
        if (tid == 0) return 0;
        return ReadCpuClock(CpuClockId(CpuClockOf::kThread, tid, clock));
      });
  if (!nanos.ok()) return nanos.status();
  if (nanos->has_value()) {
    return (user ? account.raw_user : account.raw_total).Raise(**nanos);
  }
  const absl::StatusOr<ThreadCpuTimes> last =
      ReadFinalCpuTimes(thread, generation);
  if (!last.ok()) return last.status();
  return user ? last->raw_user : last->raw_total;
}

absl::StatusOr<ThreadCpuTimes> ReadFinalCpuTimes(const Thread& thread,
                                                 uint64_t generation) {
  if (thread.kind() == ThreadKind::kGreen) {
    return ReadGreenCpuTimes(thread, generation);
  }
  const NativeRecord& record = NativeRecordOf(thread);
  const CpuAccount& account = record.cpu;
  // acquire (M41) throughout: whoever of these shows a value of a later thread
  // makes the last look see its generation.
  if (record.generation.load(std::memory_order_acquire) == generation + 1) {
    const bool left =
        account.final_of.load(std::memory_order_acquire) == generation;
    const RawPair raw = {account.raw_total.value(), account.raw_user.value()};
    ThreadCpuTimes times;
    MakeConsistent(times, raw,
                   account.last_fast.load(std::memory_order_acquire));
    times.elapsed = account.elapsed.value();
    times.is_final = true;
    // acquire (M41): the last look; it follows the loads above.
    if (record.generation.load(std::memory_order_acquire) == generation + 1) {
      if (left) return times;
      return absl::NotFoundError(
          "the thread has left no CPU time: it never ran, or it is one of the "
          "parent's in the child of a fork");
    }
  }
  return absl::NotFoundError(
      "the thread has ended, and another one has its place by now, so its last "
      "CPU time is gone: read it right after Join, or keep a ThreadSnapshot "
      "with the thread in it over its end");
}

void BeginCpuAccount(Thread& thread) {
  if (thread.kind() == ThreadKind::kGreen) return BeginGreenAccount(thread);
  CpuAccount& account = NativeRecordOf(thread).cpu;
  account.elapsed.Reset();
  account.raw_total.Reset();
  account.raw_user.Reset();
  // release (M41): who sees these sees that the slot has changed hands.
  account.last_fast.store(0, std::memory_order_release);
  account.began.store(MonotonicNanos(), std::memory_order_release);
  account.fast.ForgetOwner();
}

void EndCpuAccount(Thread& thread) {
  NativeRecord& record = NativeRecordOf(thread);
  CpuAccount& account = record.cpu;
  if (const std::optional<RawPair> raw = ReadRawPair(CpuClockOf::kThread, 0);
      raw.has_value()) {
    account.raw_total.Seal(raw->total);
    account.raw_user.Seal(raw->user);
    // acquire, release (M41): before final_of, and that before the generation
    // ends.
    account.elapsed.Seal(MonotonicNanos() -
                         account.began.load(std::memory_order_acquire));
    account.last_fast.store(account.fast.last(), std::memory_order_release);
    // relaxed (M14): constant while the calling thread lives.
    account.final_of.store(record.generation.load(std::memory_order_relaxed),
                           std::memory_order_release);
  }
}

}  // namespace stillpoint
