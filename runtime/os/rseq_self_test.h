// Tries out when this kernel empties the rseq area.

#ifndef STILLPOINT_RUNTIME_OS_RSEQ_SELF_TEST_H_
#define STILLPOINT_RUNTIME_OS_RSEQ_SELF_TEST_H_

#include <cstdint>

namespace stillpoint {

enum class RseqFinding : uint32_t {
  kUntried,
  kNoArea,           // libc has registered none on a new thread
  kNotPreempted,     // the test's thread could not be made to be preempted
  kNotCleared,       // the kernel does not report a preemption
  kClearedInUser,    // it reports one of user code, but not that a system call
                     // has blocked
  kClearedAnywhere,  // it reports both
};

// Two short-lived threads, pinned to one processor: the first sleeps in the
// kernel with a descriptor in its area, then spins until the second one, which
// wakes up now and then, has run in its place. At most about 50 ms. Any thread
// that may wait.
RseqFinding TestRseq();

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_RSEQ_SELF_TEST_H_
