// The calling thread's CPU time without a system call: the kernel's reading at
// a base point, plus the time stamp counter since. That is right for as long as
// the thread has not been descheduled, which the restartable-sequences area
// tells (rseq_area.h). docs/cpu_time.md says when it is wrong, and by how much.

#ifndef STILLPOINT_RUNTIME_OS_FAST_CPU_CLOCK_H_
#define STILLPOINT_RUNTIME_OS_FAST_CPU_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "runtime/base/cpu.h"
#include "runtime/os/tsc.h"

namespace stillpoint {

// Where the clock may keep a base.
enum class FastCpuClockMode : uint32_t {
  kOff,          // nowhere: every reading asks the kernel
  kManagedOnly,  // in Managed: the kernel does not report that a system call
                 // blocks (since Linux 6.19, with a libc that asks for that)
  kEverywhere,   // in any state
};

// Fixed when the runtime is created; see ChooseFastCpuClock.
struct FastCpuClockConfig {
  FastCpuClockMode mode = FastCpuClockMode::kOff;
  uint32_t multiplier = 0;     // nanoseconds per tick, times 2^kTscShift
  uint32_t max_age_ticks = 0;  // an older base is not counted from
  uint64_t descriptor = 0;     // RseqMarks
  std::atomic<uint32_t>* fork_word = nullptr;
};

// What has happened to one thread's clock. A plain value.
struct FastCpuClockStats {
  // How often a base was taken: one kernel reading each.
  uint64_t bases = 0;
  // How often a new base was behind the last reading by more than the two can
  // differ: that reading was too large, and the clock stood still until time
  // had caught up.
  uint64_t overruns = 0;
  // The largest such amount, in nanoseconds.
  int64_t worst_overrun = 0;
  // How often another user's descriptor was found in the area. Each costs a
  // base and does no harm.
  uint64_t other_users = 0;
};

// One thread's clock. All functions are for the owner, and may be called in its
// signal handlers, which may interrupt any of them; exceptions are marked.
//
// The fields are atomic because of those handlers and of who looks at the
// statistics. All operations are relaxed (M40): handlers run on the owner's
// thread, so compiler barriers give their order.
class alignas(kCacheLineSize) FastCpuClock {
 public:
  // Nanoseconds of CPU time of the calling thread, user and kernel mode. Never
  // less than an earlier answer.
  [[gnu::always_inline]] int64_t Read() {
    uint64_t ticks;
    return ReadWithTicks(ticks);
  }

  // The same, and the time stamp counter at that moment, which it reads anyway;
  // 0 on processors without.
  [[gnu::always_inline]] int64_t ReadWithTicks(uint64_t& ticks) {
#if defined(__x86_64__)
    // relaxed (M40), here and below: all of it happens on this thread.
    const int64_t last = last_.load(std::memory_order_relaxed);
    const uint64_t sequence = sequence_.load(std::memory_order_relaxed);
    const uint64_t base_ticks = base_ticks_.load(std::memory_order_relaxed);
    const int64_t base_nanos = base_nanos_.load(std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    // Unsigned: with no base (0), and with a counter that seems to have run
    // backwards, this is huge.
    ticks = ReadTsc();
    const uint64_t age = ticks - base_ticks;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    // The counter was read before these looks: if all is as it was, the thread
    // had not been descheduled by then, and no handler had taken a new base.
    // relaxed (M40): all of it happens on this thread.
    if (age > max_age_ticks_ ||
        field_->load(std::memory_order_relaxed) != descriptor_ ||
        sequence_.load(std::memory_order_relaxed) != sequence ||
        fork_word_->load(std::memory_order_relaxed) != epoch_) [[unlikely]] {
      return ReadSlow();
    }
    int64_t now = base_nanos + ToNanos(age);
    if (now < last) now = last;
    // A handler that has read in between may have answered more.
    if (!AdvanceLast(last, now)) [[unlikely]]
      return ReadSlow();
    return now;
#else
    ticks = 0;
    return ReadSlow();
#endif
  }

  // Forgets the base, since the thread is about to wait where the kernel may
  // not report it. One store, always: looking first whether there is a base
  // costs a transition as much (docs/cpu_time.md).
  [[gnu::always_inline]] void DropBase() {
    // relaxed (M40): read by the owner alone.
    base_ticks_.store(0, std::memory_order_relaxed);
  }

  // Before the first Read of each thread that owns the object in turn.
  void Begin(const FastCpuClockConfig& config);

  // Before that thread is known, by who prepares its place: last() is 0 until
  // it reads.
  void ForgetOwner();

  // Raises what later readings do not fall below to a reading of the kernel's;
  // returns that. What was read before a fork does not count in the child.
  int64_t AtLeast(int64_t nanos);

  // The last answer of Read, and 0 before the first one. Any thread. relaxed
  // (M40): a number.
  int64_t last() const { return last_.load(std::memory_order_relaxed); }

  // Any thread; the numbers need not be of one moment.
  FastCpuClockStats stats() const;

  // Whether a base is held that a Read now could count from. Owner. relaxed
  // (M40): as everywhere here.
  bool has_base() const {
    return base_ticks_.load(std::memory_order_relaxed) != 0;
  }

 private:
  int64_t ReadSlow();
  int64_t ReadKernel();
  int64_t Rebase();
  void CountOverrun(int64_t nanos);
  void ForgetBeforeFork();

  int64_t ToNanos(uint64_t ticks) const {
    return static_cast<int64_t>((ticks * multiplier_) >> kTscShift);
  }

  // last_: `from` to `to`, unless it is not `from` any more. One instruction,
  // so that no handler comes in between; without the lock prefix, since no
  // other thread writes the word.
  bool AdvanceLast(int64_t from, int64_t to) {
#if defined(__x86_64__)
    static_assert(sizeof(last_) == sizeof(int64_t));
    bool done;
    asm volatile("cmpxchgq %3, %1"
                 : "=@cce"(done), "+m"(last_), "+a"(from)
                 : "r"(to)
                 : "memory");
    return done;
#else
    // relaxed (M40): the owner and its handlers.
    return last_.compare_exchange_strong(from, to, std::memory_order_relaxed);
#endif
  }

  // One line: all that Read touches.
  std::atomic<uint64_t> base_ticks_{0};  // 0: there is no base
  std::atomic<int64_t> base_nanos_{0};
  std::atomic<int64_t> last_{0};
  // Changes with every attempt to take a base.
  std::atomic<uint32_t> sequence_{0};
  uint32_t epoch_ = 0;
  uint32_t multiplier_ = 0;
  uint32_t max_age_ticks_ = 0;
  uint64_t descriptor_ = 0;
  std::atomic<uint64_t>* field_ = nullptr;
  std::atomic<uint32_t>* fork_word_ = nullptr;

  FastCpuClockMode mode_ = FastCpuClockMode::kOff;
  std::atomic<uint64_t> bases_{0};
  std::atomic<uint64_t> overruns_{0};
  std::atomic<int64_t> worst_overrun_{0};
  std::atomic<uint64_t> other_users_{0};
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_FAST_CPU_CLOCK_H_
