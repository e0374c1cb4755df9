// How long before its deadline an exact sleep has to wake up and spin.

#ifndef STILLPOINT_RUNTIME_BASE_SPIN_TAIL_H_
#define STILLPOINT_RUNTIME_BASE_SPIN_TAIL_H_

#include <algorithm>
#include <cstdint>

namespace stillpoint {

// Learns how late the kernel's wake-ups are: a running mean and a running mean
// deviation, as TCP estimates its retransmission timeout (RFC 6298). Plain
// data, nanoseconds, for one thread.
class SpinTail {
 public:
  // No tail is longer, whatever was seen: the bound of what a sleep may burn.
  // Above the 50 us of default slack and a usual wake-up, so that sleeps are
  // exact also where the slack cannot be changed.
  static constexpr int64_t kMaxNanos = 200'000;

  // A wake-up came so late. One that is past the bound, for which no tail would
  // have been enough (the processor had other things to do), counts as one at
  // the bound, so that it is forgotten after a few others.
  void Learn(int64_t late_nanos) {
    const int64_t late = std::clamp<int64_t>(late_nanos, 0, kMaxNanos);
    const int64_t error = late - mean_;
    mean_ += error / 8;
    deviation_ += (std::max(error, -error) - deviation_) / 4;
  }

  // Enough for all but a few wake-ups.
  int64_t nanos() const {
    return std::min(mean_ + 4 * deviation_ + kMarginNanos, kMaxNanos);
  }

 private:
  // For the look at the clock, and for what the divisions above cut off.
  static constexpr int64_t kMarginNanos = 500;

  // Before the first wake-up: on the safe side.
  int64_t mean_ = 20'000;
  int64_t deviation_ = 20'000;
};

// Of one thread: a tail for each order of magnitude of its sleeps. The longer
// a processor has been idle, the longer it takes to wake up.
class SpinTails {
 public:
  // For sleeps of about this length.
  SpinTail& For(int64_t sleep_nanos) {
    int at = 0;
    for (int64_t limit = kFirstLimit; at < kCount - 1 && sleep_nanos >= limit;
         limit *= 10) {
      ++at;
    }
    return tails_[at];
  }

 private:
  static constexpr int kCount = 4;
  static constexpr int64_t kFirstLimit = 200'000;  // 200 us, 2 ms, 20 ms

  SpinTail tails_[kCount];
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_BASE_SPIN_TAIL_H_
