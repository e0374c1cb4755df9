// How a thread waits that is not an OS thread: the seam between the wait words
// of this floor and the scheduler of green threads.

#ifndef STILLPOINT_RUNTIME_THREAD_BLOCKER_H_
#define STILLPOINT_RUNTIME_THREAD_BLOCKER_H_

#include <cstdint>

#include "runtime/base/clock.h"

namespace stillpoint {

class WaitWord;

// One per green thread, in the TLS block while that is mounted.
class Blocker {
 public:
  // The owner, in a safe state: lets its carrier run something else until a bit
  // of `mask` is set in `word`, or something else is, or the deadline is there.
  // May return at once and for no reason. Only after the carrier is on another
  // stack does it announce the sleeper, by WaitWord::Announce.
  virtual void Block(WaitWord& word, uint32_t mask, Deadline deadline) = 0;

  // Whoever has taken the announced sleeper out of the word (exactly one): it
  // may run again. Never waits; any thread. Until this is called the blocker
  // lives.
  virtual void MakeReady() = 0;

 protected:
  ~Blocker() = default;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_BLOCKER_H_
