// The restartable-sequences area of the calling thread, as libc registered it,
// used for one thing only: to notice that the thread was descheduled.
//
// A thread may leave the address of a descriptor in the area's `rseq_cs` field.
// When the kernel preempts or migrates the thread, or delivers a signal to it,
// it looks at the descriptor; since the thread is not within the critical
// section that it describes, the kernel clears the field and does nothing else
// (linux/rseq.h; kernel/rseq.c, clear_rseq_cs). A field that still holds our
// address says that none of this has happened.

#ifndef STILLPOINT_RUNTIME_OS_RSEQ_AREA_H_
#define STILLPOINT_RUNTIME_OS_RSEQ_AREA_H_

#include <atomic>
#include <cstdint>

namespace stillpoint {

// The `rseq_cs` field of the calling thread; null if libc has registered no
// area for it: another libc, glibc before 2.35, the tunable glibc.pthread.rseq,
// or a kernel that refuses rseq(2). The library never registers one itself: a
// thread can have only one, and it belongs to libc. Good for the thread's life.
std::atomic<uint64_t>* CurrentThreadRseqField();

// What all threads of a process share.
struct RseqMarks {
  // For the field: a descriptor whose critical section is never executed. It
  // lies, with the signature that the kernel asks for, in one anonymous
  // read-only page that is never unmapped, since the kernel kills a thread that
  // carries the address of a descriptor which it cannot read.
  uint64_t descriptor = 0;
  // A word in memory that the child of a fork finds zeroed (MADV_WIPEONFORK,
  // Linux 4.14). See CurrentEpoch.
  std::atomic<uint32_t>* fork_word = nullptr;
};

// Made at the first call, and the same ever after. Null fields if there is no
// memory, or on an architecture without support. Any thread.
RseqMarks SharedRseqMarks();

// A number that is not 0 and differs between a process and each of its
// forefathers: what was remembered with another one is of a process that this
// one was forked from. `fork_word` is that of SharedRseqMarks. Any thread, any
// state; may be called in a signal handler.
uint32_t CurrentEpoch(std::atomic<uint32_t>& fork_word);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_RSEQ_AREA_H_
