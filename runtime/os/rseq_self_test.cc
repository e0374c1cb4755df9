#include "runtime/os/rseq_self_test.h"

#include <sched.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"
#include "runtime/os/rseq_area.h"

namespace stillpoint {
namespace {

constexpr int64_t kLimitNanos = 50'000'000;

// A kernel that does not report blocking can still empty the area now and then,
// when an interrupt comes at the wrong moment. It will not each time.
constexpr int kSleeps = 5;
constexpr long kSleepNanos = 50'000;

// Shared by the two threads and the caller, of whom any may be the last.
struct Trial {
  int64_t give_up = 0;
  uint64_t descriptor = 0;
  std::atomic<uint32_t> finding{0};  // RseqFinding; a futex
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> turns{0};  // of the intruder
};

bool PinTo(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

void Sleep(long nanos) {
  const timespec time = {0, nanos};
  nanosleep(&time, nullptr);
}

struct IntruderArgument {
  std::shared_ptr<Trial> trial;
  int processor = 0;
};

// Wakes up again and again on the processor on which the subject spins.
void* RunIntruder(void* argument) {
  const std::unique_ptr<IntruderArgument> own(
      static_cast<IntruderArgument*>(argument));
  Trial& trial = *own->trial;
  if (!PinTo(own->processor)) return nullptr;
  while (!trial.stop.load() && MonotonicNanos() < trial.give_up) {
    Sleep(100'000);
    trial.turns.fetch_add(1);
  }
  return nullptr;
}

bool ClearedByEachSleep(std::atomic<uint64_t>& field, uint64_t descriptor) {
  for (int i = 0; i < kSleeps; ++i) {
    field.store(descriptor);
    Sleep(kSleepNanos);
    if (field.load() == descriptor) return false;
  }
  return true;
}

RseqFinding Try(const std::shared_ptr<Trial>& trial) {
  std::atomic<uint64_t>* field = CurrentThreadRseqField();
  if (field == nullptr) return RseqFinding::kNoArea;
  const int processor = sched_getcpu();
  if (processor < 0 || processor >= CPU_SETSIZE || !PinTo(processor)) {
    return RseqFinding::kNotPreempted;
  }
  const bool by_sleep = ClearedByEachSleep(*field, trial->descriptor);

  auto argument = std::make_unique<IntruderArgument>();
  argument->trial = trial;
  argument->processor = processor;
  OsThreadOptions options;
  options.block_signals = true;
  if (!StartOsThread(options, &RunIntruder, argument.get()).ok()) {
    return RseqFinding::kNotPreempted;
  }
  argument.release();  // the intruder's now
  // It has pinned itself when it takes its first turn.
  while (trial->turns.load() == 0) {
    if (MonotonicNanos() >= trial->give_up) return RseqFinding::kNotPreempted;
    Sleep(100'000);
  }
  // In user mode from here on: the clock is the vDSO's where that counts.
  const uint32_t before = trial->turns.load();
  field->store(trial->descriptor);
  while (trial->turns.load() == before) {
    if (MonotonicNanos() >= trial->give_up) return RseqFinding::kNotPreempted;
    CpuRelax();
  }
  // The intruder has run on this processor, so this thread did not.
  if (field->load() == trial->descriptor) return RseqFinding::kNotCleared;
  return by_sleep ? RseqFinding::kClearedAnywhere : RseqFinding::kClearedInUser;
}

void* RunSubject(void* argument) {
  const std::unique_ptr<std::shared_ptr<Trial>> share(
      static_cast<std::shared_ptr<Trial>*>(argument));
  Trial& trial = **share;
  // The creator may be a real-time thread, and this one would be, too: the
  // intruder could not get the processor. The intruder gets what this one has.
  const sched_param none = {};
  sched_setscheduler(0, SCHED_OTHER, &none);
  const RseqFinding finding = Try(*share);
  trial.stop.store(true);
  trial.finding.store(static_cast<uint32_t>(finding));
  FutexWake(trial.finding, 1);
  return nullptr;
}

}  // namespace

RseqFinding TestRseq() {
  const RseqMarks marks = SharedRseqMarks();
  if (marks.fork_word == nullptr) return RseqFinding::kNoArea;
  auto trial = std::make_shared<Trial>();
  trial->give_up = MonotonicNanos() + kLimitNanos;
  trial->descriptor = marks.descriptor;
  auto share = std::make_unique<std::shared_ptr<Trial>>(trial);
  OsThreadOptions options;
  options.block_signals = true;
  if (!StartOsThread(options, &RunSubject, share.get()).ok()) {
    return RseqFinding::kNotPreempted;
  }
  share.release();  // the subject's now
  const Deadline deadline = Deadline::AtMonotonicNanos(trial->give_up);
  while (trial->finding.load() == 0) {
    if (FutexWait(trial->finding, 0u, deadline) == FutexResult::kTimedOut) {
      trial->stop.store(true);
      break;
    }
  }
  const auto finding = static_cast<RseqFinding>(trial->finding.load());
  return finding == RseqFinding::kUntried ? RseqFinding::kNotPreempted
                                          : finding;
}

}  // namespace stillpoint
