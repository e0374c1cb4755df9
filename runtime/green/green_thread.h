// What a green thread is to its carrier. Internal; embedders see a Thread and a
// ThreadHandle, as for native ones.

#ifndef STILLPOINT_RUNTIME_GREEN_GREEN_THREAD_H_
#define STILLPOINT_RUNTIME_GREEN_GREEN_THREAD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpu.h"
#include "runtime/base/tls_block.h"
#include "runtime/green/context.h"
#include "runtime/green/stack.h"
#include "runtime/green/timer_queue.h"
#include "runtime/thread/blocker.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_local_slot.h"

namespace stillpoint {

class Carrier;
class WaitWord;

// Lives at the top of the thread's own stack, in the page that is touched
// anyway: what others may look at after the thread's end is in its GreenRecord.
//
// It is owned by one party at a time: the carrier that it runs on; the queue in
// which it is ready; or the wait word in which it is announced, and then by
// whoever takes it from there.
class alignas(kCacheLineSize) GreenThread final : public Blocker {
 public:
  GreenThread(Thread& thread, Stack& own_stack)
      : line(thread), stack(own_stack) {}
  GreenThread(const GreenThread&) = delete;
  GreenThread& operator=(const GreenThread&) = delete;

  // The calling green thread; null on any other.
  static GreenThread* Current() {
    return static_cast<GreenThread*>(tls_block.blocker);
  }

  void Block(WaitWord& word, uint32_t mask, Deadline deadline) override;
  void MakeReady() override;

  Thread& line;
  Context context;
  Stack& stack;

  // Until it has run.
  absl::AnyInvocable<void()> body;

  // The carrier that it runs on, or ran on last: it belongs there for good,
  // unless threads migrate. Null until it is first mounted.
  Carrier* home = nullptr;

  // Link of the queue in which it is ready, and since when (Ticks()).
  GreenThread* next = nullptr;
  uint64_t ready_since = 0;

  // Of the deadline of the wait that it is in.
  Timer timer;

  std::atomic<void*> locals[ThreadLocalSlot::kMaxSlots] = {};
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_GREEN_THREAD_H_
