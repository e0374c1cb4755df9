#include "runtime/thread/slot_table.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/os/pages.h"
#include "runtime/thread/green_record.h"
#include "runtime/thread/native_record.h"
#include "runtime/thread/thread.h"
#include "runtime/thread/thread_record.h"

namespace stillpoint {
namespace {

// In ThreadRecord::pins: the slot is to be freed when the last pin goes.
constexpr uint32_t kRetired = 1u << 31;

}  // namespace

// The lines are constructed with the chunk, so that a scan may read any of
// them; a record, of which there is one for each line behind them, only when
// its slot is first claimed.
struct SlotTable::Chunk {
  Thread lines[kSlotsPerChunk];
};
static_assert(sizeof(Thread) % alignof(NativeRecord) == 0 &&
              sizeof(Thread) % alignof(GreenRecord) == 0);

Thread* SlotTable::Lines(Chunk* chunk) { return chunk->lines; }

SlotTable::SlotTable(StopControl& control, ThreadKind kind)
    : control_(control),
      kind_(kind),
      record_size_(kind == ThreadKind::kGreen ? sizeof(GreenRecord)
                                              : sizeof(NativeRecord)) {}

size_t SlotTable::ChunkSize() const {
  return sizeof(Chunk) + kSlotsPerChunk * record_size_;
}

void* SlotTable::RecordPlace(Chunk* chunk, uint32_t place) const {
  return reinterpret_cast<std::byte*>(chunk + 1) + place * record_size_;
}

ThreadRecord* SlotTable::NewRecord(void* place) const {
  if (kind_ == ThreadKind::kGreen) return new (place) GreenRecord();
  return new (place) NativeRecord();
}

void SlotTable::DestroyRecord(ThreadRecord& record) const {
  if (kind_ == ThreadKind::kGreen) {
    std::destroy_at(&static_cast<GreenRecord&>(record));
  } else {
    std::destroy_at(&static_cast<NativeRecord&>(record));
  }
}

SlotTable::~SlotTable() {
  for (std::atomic<Chunk*>& entry : chunks_) {
    // acquire (M30): no need of it, nobody else has the table any more.
    Chunk* chunk = entry.load(std::memory_order_acquire);
    if (chunk == nullptr) continue;
    for (Thread& line : chunk->lines) {
      if (line.bound()) DestroyRecord(line.record());
    }
    UnmapPages(chunk, ChunkSize());
  }
}

absl::StatusOr<Thread*> SlotTable::Claim() {
  Thread* thread = PopFree();
  if (thread == nullptr) {
    absl::StatusOr<Thread*> fresh = ClaimFresh();
    if (!fresh.ok()) return fresh.status();
    thread = *fresh;
  }
  BeginGeneration(*thread);
  return thread;
}

void SlotTable::BeginGeneration(Thread& thread) {
  // relaxed, release (M14): the slot is the caller's, who alone changes it now;
  // who finds this generation sees all that happened to the slot before.
  std::atomic<uint64_t>& generation = thread.record().generation;
  generation.store(generation.load(std::memory_order_relaxed) + 1,
                   std::memory_order_release);
}

bool SlotTable::IsUnpinned(Thread& thread) {
  // seq_cst (M6) against Pin: either the reader sees the advanced generation,
  // or its pin is seen here.
  return thread.record().pins.load() == 0;
}

absl::StatusOr<Thread*> SlotTable::ClaimFresh() {
  // relaxed (M12): a guess, which the exchange below checks.
  uint32_t index = next_fresh_.load(std::memory_order_relaxed);
  do {
    if (index >= kMaxChunks * kSlotsPerChunk) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a runtime holds at most ", kMaxChunks * kSlotsPerChunk,
                       " threads at once: let some end first"));
    }
    // The chunk exists before an index in it is given out, so a failure leaves
    // nothing behind.
    if (EnsureChunk(index / kSlotsPerChunk) == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory to register a thread (mmap of ", ChunkSize(),
                       " bytes failed): check ulimit -v and "
                       "vm.max_map_count"));
    }
    // release (M12): who sees the new number of slots sees the chunk, too.
  } while (!next_fresh_.compare_exchange_weak(
      index, index + 1, std::memory_order_acq_rel, std::memory_order_relaxed));
  Chunk* chunk =
      chunks_[index / kSlotsPerChunk].load(std::memory_order_acquire);
  const uint32_t place = index % kSlotsPerChunk;
  ThreadRecord* record = NewRecord(RecordPlace(chunk, place));
  record->index = index;
  chunk->lines[place].Bind(control_, *record);
  return &chunk->lines[place];
}

SlotTable::Chunk* SlotTable::EnsureChunk(uint32_t chunk_index) {
  std::atomic<Chunk*>& entry = chunks_[chunk_index];
  // acquire (M12): another thread may have made the chunk.
  Chunk* chunk = entry.load(std::memory_order_acquire);
  if (chunk != nullptr) return chunk;
  void* memory = MapPages(ChunkSize());
  if (memory == nullptr) return nullptr;
  // Default-initialised: the lines run their constructors, the bytes of the
  // records stay untouched pages.
  Chunk* made = new (memory) Chunk;
  // release (M12): publishes the constructed lines to scans.
  if (entry.compare_exchange_strong(chunk, made, std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
    return made;
  }
  UnmapPages(memory, ChunkSize());  // another thread was faster
  return chunk;
}

Thread* SlotTable::SlotAt(uint32_t index) const {
  // acquire (M12): as in ForEachSlot.
  Chunk* chunk =
      chunks_[index / kSlotsPerChunk].load(std::memory_order_acquire);
  return &chunk->lines[index % kSlotsPerChunk];
}

Thread* SlotTable::PopFree() {
  // acquire/acq_rel (M13): pairs with PushFree, so that the link and all that
  // the slot's last thread wrote are seen.
  uint64_t head = free_head_.load(std::memory_order_acquire);
  while (true) {
    const uint32_t first = static_cast<uint32_t>(head);
    if (first == 0) return nullptr;
    Thread* thread = SlotAt(first - 1);
    // relaxed (M13): another popper may have taken it meanwhile, and its link
    // may be stale; the tag then makes the exchange fail. The memory is always
    // mapped.
    const uint32_t next =
        thread->record().next_free.load(std::memory_order_relaxed);
    const uint64_t tag = (head >> 32) + 1;
    if (free_head_.compare_exchange_weak(head, tag << 32 | next,
                                         std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
      return thread;
    }
  }
}

void SlotTable::PushFree(Thread& thread) {
  ThreadRecord& record = thread.record();
  // relaxed (M13): the exchange checks it.
  uint64_t head = free_head_.load(std::memory_order_relaxed);
  do {
    // relaxed (M13): published by the exchange.
    record.next_free.store(static_cast<uint32_t>(head),
                           std::memory_order_relaxed);
  } while (!free_head_.compare_exchange_weak(
      head, (head >> 32) << 32 | (record.index + 1), std::memory_order_acq_rel,
      std::memory_order_relaxed));
}

void SlotTable::Release(Thread& thread) {
  if (IsUnpinned(thread)) {
    PushFree(thread);
    return;
  }
  // seq_cst (M6): as there; the mark is for the pins that were found.
  if (thread.record().pins.fetch_or(kRetired) != 0) return;
  uint32_t retired = kRetired;
  if (thread.record().pins.compare_exchange_strong(retired, 0)) {
    PushFree(thread);
  }
  // Else a reader came in between; its Unpin frees the slot.
}

bool SlotTable::Pin(Thread& thread, uint64_t generation) {
  ThreadRecord& record = thread.record();
  // seq_cst (M6) against Retire and Release.
  record.pins.fetch_add(1);
  if (record.generation.load() == generation) return true;
  Unpin(thread);
  return false;
}

void SlotTable::Unpin(Thread& thread) {
  ThreadRecord& record = thread.record();
  // Who takes the last pin off a retired slot frees it: exactly one thread wins
  // the exchange, also against new (and vain) pins.
  if (record.pins.fetch_sub(1) == (kRetired | 1)) {
    uint32_t retired = kRetired;
    if (record.pins.compare_exchange_strong(retired, 0)) PushFree(thread);
  }
}

}  // namespace stillpoint
