// A witness of the invariant that while the world is stopped nobody is in
// managed code.

#ifndef STILLPOINT_RUNTIME_OBSERVE_STOP_CANARY_H_
#define STILLPOINT_RUNTIME_OBSERVE_STOP_CANARY_H_

#include <atomic>
#include <cstdint>

namespace stillpoint {

// Mutators bracket managed work between polls; an operation asks whether
// anybody is inside. For tests and examples: it costs a shared counter.
class StopCanary {
 public:
  // Managed work that neither polls nor leaves Managed.
  class Work {
   public:
    // relaxed (M29), here and below: see Check.
    explicit Work(StopCanary& canary) : canary_(canary) {
      canary_.inside_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Work() { canary_.inside_.fetch_sub(1, std::memory_order_relaxed); }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    StopCanary& canary_;
  };

  // From an operation, at a safepoint: counts a violation if anybody is inside.
  // relaxed (M29): the safepoint itself must order these accesses; an order of
  // the canary's own would hide it if it did not.
  void Check() {
    if (inside_.load(std::memory_order_relaxed) != 0) {
      violations_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  // relaxed (M29): a count.
  uint64_t violations() const {
    return violations_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> inside_{0};
  std::atomic<uint64_t> violations_{0};
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OBSERVE_STOP_CANARY_H_
