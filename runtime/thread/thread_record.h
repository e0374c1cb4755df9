// The part of a thread that a stop does not touch. Internal; embedders see it
// through Thread, ThreadHandle and World.

#ifndef STILLPOINT_RUNTIME_THREAD_THREAD_RECORD_H_
#define STILLPOINT_RUNTIME_THREAD_THREAD_RECORD_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "runtime/base/intrusive_list.h"
#include "runtime/base/thread_state.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/os/os_thread.h"
#include "runtime/thread/handshake_queue.h"
#include "runtime/thread/saved_context.h"
#include "runtime/thread/wait_word.h"
#include "runtime/thread/waiting_for.h"

namespace stillpoint {

class Registry;

// Somebody who waits for a thread's end; lives on the waiter's stack.
struct Joiner : IntrusiveNode<Joiner> {
  WaitWord* wait = nullptr;
  // The last that the exiting thread touches, with the record's join_lock held.
  std::atomic<bool> done{false};
};

// One per slot, reused by one thread after another, never unmapped while the
// registry lives. A reader that is not its owner pins it first (slot_table.h).
// The slots of a table are all of one kind, which has a record of its own:
// native_record.h, green_record.h. Together in a cache line is what one party
// uses at a time; and it is small, since there may be a million.
struct ThreadRecord {
  explicit ThreadRecord(ThreadKind slot_kind) : kind(slot_kind) {}

  // --- Line 0: who it is, and who looks. ---

  // Odd while a thread lives in the slot. Ends with the thread; a handle is a
  // slot and a generation.
  std::atomic<uint64_t> generation{0};

  // Readers that hold the record, and the mark that the slot is to be freed by
  // the last of them.
  std::atomic<uint32_t> pins{0};

  // Link of the free list: index + 1 of the next free slot.
  std::atomic<uint32_t> next_free{0};

  uint32_t index = 0;  // of the slot

  // 0 while New; of a green thread the carrier's, 0 while it has none. Atomic:
  // read by anybody at any time.
  std::atomic<pid_t> tid{0};

  // Written by the starting thread before the slot is published; constant for
  // the thread's life.
  uint64_t id = 0;
  std::string name;

  // --- Line 1: what others ask of it. ---

  HandshakeQueue handshakes{wait};

  // What the owner waits for.
  WaitingForWord waiting_for;

  // --- Line 2: waiting, and being waited for. ---

  WaitWord wait;

  // When the owner last stopped for a stop (MonotonicNanos), so that the stop
  // can say who came last. relaxed (M27): ordered by the state word.
  std::atomic<int64_t> arrived_at{0};

  // Where the owner last entered or left Managed: 0, unless that code was
  // compiled with STILLPOINT_TRANSITION_SITES (transition.h).
  std::atomic<uintptr_t> transition_site{0};

  // Those that sleep on the thread's state word (M2).
  std::atomic<uint32_t> state_sleepers{0};

  // For good. (A carrier's slot is one of the native ones.)
  const ThreadKind kind;

  bool foreign = false;  // attached, not started by the runtime
  bool counted = false;  // in the population: all but carriers
  // The owner's own. It has called Shutdown, so that nobody waits for it there.
  bool closes = false;

  // Written by the thread itself while it is New or attaches, published by its
  // first store of another state.
  StackBounds stack;

  // The embedder's pointers, ThreadLocalSlot::kMaxSlots of them. Atomic because
  // operations may read those of a Native thread while it sets them.
  std::atomic<void*>* locals = nullptr;

  // The owner's own: the state of its choices among equals; 0 = not begun.
  uint64_t random = 0;

  // --- Line 3: its registers. ---

  // Written by the owner before the release store that leaves Managed; read by
  // operations, which saw that store by acquire.
  SavedContext saved;

  // How often AttachCurrentThread has succeeded without its detach. A thread
  // that the runtime started is attached once more than this says. The owner's
  // own.
  uint32_t attach_depth = 0;
  // How often it was suspended and not resumed; above 0 it does not come to
  // managed code (thread/suspension.h).
  std::atomic<uint32_t> suspend_count{0};
  // The owner's own. The destructors of its thread-local slots are running: it
  // is on its way out, and cannot be detached once more from there.
  bool leaving = false;

  // --- Line 4: its begin and its end. ---

  // A share for a native thread; a mere pointer for a green one.
  std::shared_ptr<Registry> keep_alive;

  RankedMutex join_lock{kJoinLockRank};
  IntrusiveList<Joiner> joiners ABSL_GUARDED_BY(join_lock);
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_THREAD_RECORD_H_
