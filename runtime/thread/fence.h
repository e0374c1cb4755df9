// Fence modes: which side of the two Dekker pairs pays for the order.
//
// Entering Managed stores the state and reads the stop word; the stopper writes
// the stop word and reads the state. Leaving stores the state and reads the
// poll word; the stopper announces in the poll word and reads the state again.
// In each pair both sides need a full barrier between their store and their
// load, or both may read old values (docs/safepoint_protocol.md, races R1, R2;
// docs/memory_ordering.md, M1, M2).

#ifndef STILLPOINT_RUNTIME_THREAD_FENCE_H_
#define STILLPOINT_RUNTIME_THREAD_FENCE_H_

#include <atomic>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/sanitizer.h"

namespace stillpoint {

enum class FencePolicy {
  kAuto,        // measure at start, see ChooseFence
  kMembarrier,  // mutators pay a compiler barrier, the stopper membarrier(2)
  kFull,        // both sides pay a fence; leaving only without membarrier
};

// Fixed when the runtime is created.
struct FenceMode {
  bool enter_fenced = true;  // mutators fence when they enter Managed
  bool leave_fenced = true;  // mutators fence when they leave it, which they
                             // need not wherever there is a membarrier
};

struct FenceChoice {
  FenceMode mode;
  std::string reason;  // one line for the log
};

// Turns the policy into a mode. kAuto takes membarrier where one costs no more
// than 5 µs with a running peer, or where only one processor is allowed
// (then it costs a system call and no interruption of anybody); else full
// fences. Error: FailedPrecondition if kMembarrier is asked for and refused.
absl::StatusOr<FenceChoice> ChooseFence(FencePolicy policy);

// A full barrier: no load after it is satisfied before a store in front of it
// is visible.
inline void FullFence() {
#if defined(STILLPOINT_TSAN)
  // TSan does not model fences, and g++ refuses them under it; on the machines
  // that TSan runs on, a seq_cst read-modify-write is a full barrier.
  std::atomic<int> local{0};
  local.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// `word = value`, then a full barrier (M1, M2, M3), and the release of M7. On
// x86 one xchg, which is cheaper than a store and mfence.
template <typename T>
inline void StoreThenFence(std::atomic<T>& word, T value) {
#if defined(__x86_64__)
  word.exchange(value, std::memory_order_seq_cst);
#else
  word.store(value, std::memory_order_release);
  FullFence();
#endif
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_FENCE_H_
