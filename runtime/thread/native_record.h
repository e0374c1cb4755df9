// The record of a thread that is an OS thread of its own.

#ifndef STILLPOINT_RUNTIME_THREAD_NATIVE_RECORD_H_
#define STILLPOINT_RUNTIME_THREAD_NATIVE_RECORD_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/functional/any_invocable.h"
#include "runtime/base/check.h"
#include "runtime/base/cpu.h"
#include "runtime/base/thread_state.h"
#include "runtime/thread/cpu_account.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_local_slot.h"
#include "runtime/thread/thread_record.h"

namespace stillpoint {

struct alignas(kCacheLineSize) NativeRecord : ThreadRecord {
  NativeRecord() : ThreadRecord(ThreadKind::kNative) { locals = own_locals; }

  // The body of a started thread, until it runs.
  absl::AnyInvocable<void()> body;

  // Its CPU time: by its own clock, and as others have seen it.
  CpuAccount cpu;

  std::atomic<void*> own_locals[ThreadLocalSlot::kMaxSlots] = {};

  std::optional<std::chrono::nanoseconds> timer_slack;  // ThreadOptions

  // Start protocols that wait for the child (start.cc): see StartStep.
  std::atomic<uint32_t> start_step{0};
};

// The record of a thread that is known to be native, or of a carrier.
inline NativeRecord& NativeRecordOf(const Thread& thread) {
  STILLPOINT_DCHECK(thread.record().kind == ThreadKind::kNative, "thread ",
                    thread.record().name, " is green: it has no OS thread");
  return static_cast<NativeRecord&>(thread.record());
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_NATIVE_RECORD_H_
