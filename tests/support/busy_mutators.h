// Threads that do nothing but managed work, with a poll after each piece.

#ifndef STILLPOINT_TESTS_SUPPORT_BUSY_MUTATORS_H_
#define STILLPOINT_TESTS_SUPPORT_BUSY_MUTATORS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"

namespace stillpoint::testing {

// Started by the constructor, named "busy-0", "busy-1" …; ended and joined by
// the destructor. The runtime and the canary must outlive it.
class BusyMutators {
 public:
  BusyMutators(Runtime& runtime, StopCanary& canary, size_t count);
  ~BusyMutators() { Stop(); }
  BusyMutators(const BusyMutators&) = delete;
  BusyMutators& operator=(const BusyMutators&) = delete;

  size_t size() const { return mutators_.size(); }

  // Until each has done a piece of work since the call.
  void AwaitProgress() const;

  // Pieces of work done by all of them. In an operation, at a safepoint, this
  // is a plain number that stands still.
  uint64_t Progress() const;

  // From an operation, at a safepoint: the sum of what each keeps in memory
  // that nothing but the safepoint protects. TSan reports a stop that does not
  // order the mutators' work against the operation.
  uint64_t UnprotectedSum() const;

  void Stop();

 private:
  struct alignas(64) Mutator {
    std::atomic<uint64_t> progress{0};
    uint64_t unprotected = 0;
    ThreadHandle handle;
  };

  std::atomic<bool> begin_{false};
  std::atomic<bool> stop_{false};
  std::vector<std::unique_ptr<Mutator>> mutators_;
};

}  // namespace stillpoint::testing

#endif  // STILLPOINT_TESTS_SUPPORT_BUSY_MUTATORS_H_
