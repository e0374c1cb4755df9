// Where threads live: cache-line slots in chunks that are never unmapped while
// the table lives, their free list, and pins.
//
// Nothing here takes a lock. A thread that is preempted in the middle of an
// operation on the table delays nobody: each operation commits by one atomic
// instruction. (A lock around the free list was the design before: with 64
// busy threads on two processors its holder was now and then preempted, and the
// VM thread then waited tens of milliseconds for it.)

#ifndef STILLPOINT_RUNTIME_THREAD_SLOT_TABLE_H_
#define STILLPOINT_RUNTIME_THREAD_SLOT_TABLE_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/base/thread_state.h"
#include "runtime/thread/stop_control.h"
#include "runtime/thread/thread.h"

namespace stillpoint {

class SlotTable {
 public:
  static constexpr uint32_t kSlotsPerChunk = 256;
  static constexpr uint32_t kMaxChunks = 8192;  // 2,097,152 threads

  // For threads of one kind, native (which includes carriers) or green.
  // `control` must outlive the table.
  SlotTable(StopControl& control, ThreadKind kind);
  // No thread may live in it.
  ~SlotTable();
  SlotTable(const SlotTable&) = delete;
  SlotTable& operator=(const SlotTable&) = delete;

  // A slot in state Vacant, or Terminated if it was used before, with an odd
  // generation: the caller's to fill and to publish by storing a state. O(1).
  // Error: ResourceExhausted.
  absl::StatusOr<Thread*> Claim();

  // Gives up a slot whose thread has ended: its state is Vacant or Terminated
  // and its generation was advanced. If readers pin it, the last of them frees
  // it. The caller may not touch the slot afterwards.
  void Release(Thread& thread);

  // For who keeps a free slot to itself: whether nobody looks at a slot whose
  // generation has ended, so that it need not be released; and what Claim does
  // before a slot is used again.
  static bool IsUnpinned(Thread& thread);
  static void BeginGeneration(Thread& thread);

  // Makes the record of the thread of that generation readable until Unpin;
  // false if it is gone. Any thread, any state; never waits.
  bool Pin(Thread& thread, uint64_t generation);
  void Unpin(Thread& thread);

  // Calls f(Thread&) for every slot that was ever claimed, in order of address.
  // Reads nothing but the words that f reads; slots claimed meanwhile may be
  // left out.
  template <typename F>
  void ForEachSlot(F f) const;

  // An upper bound of the slots that ForEachSlot visits now.
  uint32_t slots_in_use() const {
    // acquire (M12): pairs with the claim's increment; see ForEachSlot.
    return next_fresh_.load(std::memory_order_acquire);
  }

 private:
  struct Chunk;

  absl::StatusOr<Thread*> ClaimFresh();
  Chunk* EnsureChunk(uint32_t chunk_index);
  Thread* SlotAt(uint32_t index) const;
  Thread* PopFree();
  void PushFree(Thread& thread);

  size_t ChunkSize() const;
  void* RecordPlace(Chunk* chunk, uint32_t place) const;
  ThreadRecord* NewRecord(void* place) const;
  void DestroyRecord(ThreadRecord& record) const;

  static Thread* Lines(Chunk* chunk);

  StopControl& control_;
  const ThreadKind kind_;
  const size_t record_size_;
  // Low half: index + 1 of the first free slot; high half: a tag that changes
  // with every pop, against ABA.
  std::atomic<uint64_t> free_head_{0};
  std::atomic<uint32_t> next_fresh_{0};
  std::atomic<Chunk*> chunks_[kMaxChunks] = {};
};

template <typename F>
void SlotTable::ForEachSlot(F f) const {
  const uint32_t end = slots_in_use();
  for (uint32_t first = 0; first < end; first += kSlotsPerChunk) {
    // acquire (M12): pairs with the publication of the chunk, which came before
    // any of its slots was given out; so it is never null here.
    Chunk* chunk =
        chunks_[first / kSlotsPerChunk].load(std::memory_order_acquire);
    Thread* lines = Lines(chunk);
    const uint32_t count = std::min(end - first, kSlotsPerChunk);
    for (uint32_t i = 0; i < count; ++i) f(lines[i]);
  }
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_SLOT_TABLE_H_
