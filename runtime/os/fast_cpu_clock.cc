#include "runtime/os/fast_cpu_clock.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "runtime/base/tls_block.h"
#include "runtime/os/cpu_clock.h"
#include "runtime/os/rseq_area.h"
#include "runtime/os/tsc.h"

namespace stillpoint {
namespace {

// A base is taken between two looks at the counter. What comes in between and
// is not reported (an interrupt; since Linux 6.19 a preemption in the kernel)
// shows by their distance, half of which is what the base may be wrong by.
constexpr int64_t kMaxGapNanos = 10'000;

// Attempts to take a base, before a reading goes without.
constexpr int kAttempts = 8;

// One writer, whose handlers may count, too: a lost count is no harm.
void Count(std::atomic<uint64_t>& counter) {
  // relaxed (M40): a number.
  counter.store(counter.load(std::memory_order_relaxed) + 1,
                std::memory_order_relaxed);
}

}  // namespace

void FastCpuClock::ForgetOwner() {
  DropBase();
  // relaxed (M40): nobody looks before the thread is published.
  last_.store(0, std::memory_order_relaxed);
}

void FastCpuClock::Begin(const FastCpuClockConfig& config) {
  ForgetOwner();
  // relaxed (M40): the owner's; who looks at the numbers needs no order.
  bases_.store(0, std::memory_order_relaxed);
  overruns_.store(0, std::memory_order_relaxed);
  worst_overrun_.store(0, std::memory_order_relaxed);
  other_users_.store(0, std::memory_order_relaxed);
  mode_ = config.mode;
  multiplier_ = config.multiplier;
  descriptor_ = config.descriptor;
  fork_word_ = config.fork_word;
  field_ = mode_ == FastCpuClockMode::kOff ? nullptr : CurrentThreadRseqField();
  if (field_ == nullptr) {
    // No age is small enough, so that Read never looks at the field.
    mode_ = FastCpuClockMode::kOff;
    max_age_ticks_ = 0;
    return;
  }
  max_age_ticks_ = config.max_age_ticks;
  epoch_ = CurrentEpoch(*fork_word_);
}

int64_t FastCpuClock::AtLeast(int64_t nanos) {
  // As in ReadSlow: the kernel's own readings do not fall.
  if (mode_ == FastCpuClockMode::kOff) return nanos;
  if (CurrentEpoch(*fork_word_) != epoch_) ForgetBeforeFork();
  while (true) {
    // relaxed (M40): the owner and its handlers.
    const int64_t last = last_.load(std::memory_order_relaxed);
    if (last >= nanos) return last;
    if (AdvanceLast(last, nanos)) return nanos;
  }
}

FastCpuClockStats FastCpuClock::stats() const {
  FastCpuClockStats stats;
  // relaxed (M40): numbers.
  stats.bases = bases_.load(std::memory_order_relaxed);
  stats.overruns = overruns_.load(std::memory_order_relaxed);
  stats.worst_overrun = worst_overrun_.load(std::memory_order_relaxed);
  stats.other_users = other_users_.load(std::memory_order_relaxed);
  return stats;
}

int64_t FastCpuClock::ReadSlow() {
  // Off, the kernel is asked each time and nothing has to be remembered.
  if (mode_ == FastCpuClockMode::kOff) return CurrentThreadKernelCpuNanos();
  if (CurrentEpoch(*fork_word_) != epoch_) ForgetBeforeFork();
  if (mode_ == FastCpuClockMode::kManagedOnly && CurrentThreadIsSafe()) {
    return AtLeast(CurrentThreadKernelCpuNanos());
  }
  return Rebase();
}

int64_t FastCpuClock::Rebase() {
  int64_t kernel_nanos = 0;
  for (int i = 0; i < kAttempts; ++i) {
    // relaxed throughout (M40): handlers run on this thread, and the barriers
    // keep the compiler from moving anything. A handler that takes a base of
    // its own changes the sequence; that there was a handler at all shows in
    // the field, since the kernel clears it on delivery; where system calls do
    // not report, only if the handler has interrupted user code. So the old
    // base goes first: a handler on the way out of the system call below would
    // count from it, with the new descriptor in the field.
    DropBase();
    std::atomic_signal_fence(std::memory_order_seq_cst);
    // relaxed (M40): as said.
    const uint32_t sequence = sequence_.load(std::memory_order_relaxed) + 1;
    sequence_.store(sequence, std::memory_order_relaxed);
    const uint64_t found = field_->load(std::memory_order_relaxed);
    if (found != 0 && found != descriptor_) Count(other_users_);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    field_->store(descriptor_, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const auto undisturbed = [&] {
      // relaxed (M40): as above.
      std::atomic_signal_fence(std::memory_order_seq_cst);
      return field_->load(std::memory_order_relaxed) == descriptor_ &&
             sequence_.load(std::memory_order_relaxed) == sequence;
    };
    const uint64_t before = ReadTsc();
    kernel_nanos = CurrentThreadKernelCpuNanos();
    const uint64_t after = ReadTsc();
    const uint64_t gap = after - before;
    if (ToNanos(gap) > kMaxGapNanos || !undisturbed()) continue;
    // Too old already: a bound that is shorter than a system call.
    if (gap > max_age_ticks_) break;
    // relaxed (M40): see what follows them.
    base_nanos_.store(kernel_nanos, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    // The kernel looked at its clock somewhere in between.
    base_ticks_.store(before + gap / 2, std::memory_order_relaxed);
    // A handler that came between the two stores has had its own base mixed
    // with this one. No reading has counted from the mixture: it is taken back
    // here, before the next Read, and a further handler finds the field empty.
    if (!undisturbed()) {
      DropBase();
      continue;
    }
    Count(bases_);
    const int64_t now = kernel_nanos + ToNanos(gap - gap / 2);
    const int64_t behind = AtLeast(now) - now;
    if (behind > ToNanos(gap)) CountOverrun(behind);
    return now + behind;
  }
  return AtLeast(kernel_nanos);
}

void FastCpuClock::CountOverrun(int64_t nanos) {
  Count(overruns_);
  // relaxed (M40): a number.
  worst_overrun_.store(
      std::max(nanos, worst_overrun_.load(std::memory_order_relaxed)),
      std::memory_order_relaxed);
}

void FastCpuClock::ForgetBeforeFork() {
  // The child's clock begins at 0.
  DropBase();
  // relaxed (M40): the child's only thread.
  last_.store(0, std::memory_order_relaxed);
  epoch_ = CurrentEpoch(*fork_word_);
}

}  // namespace stillpoint
