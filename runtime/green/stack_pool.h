// Stacks for green threads: reserved many at a time, used again and again.
//
// An idle stack is *warm* (its pages are kept), or *cold* (they were given back
// to the system: it costs address space and page table entries). Each carrier
// keeps a few warm ones to itself in a StackCache, where to take one and to put
// one back costs some instructions. The pool keeps a bounded number of others
// warm; what is put back beyond that becomes cold.

#ifndef STILLPOINT_RUNTIME_GREEN_STACK_POOL_H_
#define STILLPOINT_RUNTIME_GREEN_STACK_POOL_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/check.h"
#include "runtime/green/stack.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/os/stack_memory.h"

namespace stillpoint {

// Shared by the carriers. All calls: any thread, any state; they take
// StackPool_lock, a leaf, for a few instructions at a time, and otherwise block
// for system calls only.
class StackPool {
 public:
  explicit StackPool(GuardPolicy policy = GuardPolicy::kAuto);
  // Every stack is back and every cache is gone, or it dies with a sentence;
  // not so in the child of a fork.
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  // Gives back the pages of all idle stacks that are not in a cache. Returns
  // how many stacks became cold.
  size_t Trim();

  // In numbers of stacks.
  struct Stats {
    size_t made = 0;  // ever; they are unmapped with the pool
    size_t out = 0;   // in use, or in a cache
    size_t warm = 0;
    size_t cold = 0;
    bool guards_are_mappings = false;  // each takes two of vm.max_map_count
  };
  Stats stats() const;

  // In the child of a fork, where other threads do not exist: makes the lock
  // free. Their stacks are never returned, and nothing asks for them.
  void ResetInForkedChild();

 private:
  friend class StackCache;

  static constexpr size_t kClasses =
      std::bit_width(kMaxStackSize) - std::bit_width(kMinStackSize) + 1;

  // A mapping, and what follows it in memory of its own: its stacks.
  struct Slab {
    uintptr_t low;
    size_t stacks;
    size_t made;
    Slab* next;
  };

  struct SizeClass {
    Slab* fresh = nullptr;  // with stacks that were never made
    Slab* full = nullptr;
    size_t next_slab = 0;  // stacks in it; 0 before the first
    StackList warm;
    StackList cold;
    StackList bare;  // made, but never guarded: the system refused
    size_t made = 0;
    size_t out = 0;
  };

  static size_t ClassOf(size_t size) {
    return size <= kMinStackSize
               ? 0
               : std::bit_width(size - 1) - std::bit_width(kMinStackSize - 1);
  }
  static size_t SizeOf(size_t size_class);
  static size_t CacheLimit(size_t size_class);
  static size_t WarmLimit(size_t size_class);

  // Adds between 1 and `count` stacks to `list`, or says why there are none.
  absl::Status Take(size_t size_class, size_t count, StackList& list);
  // Takes them back.
  void Return(size_t size_class, StackList list);

  absl::Status Make(size_t size_class, size_t count, StackList& list);
  absl::Status AddSlab(size_t size_class);
  static StackList MakeUnguarded(SizeClass& of, size_t size_class,
                                 size_t count);
  static void UnmapAll(Slab* slabs, size_t stride);
  static void GiveBack(const StackList& list);

  StackMemory memory_;
  mutable RankedMutex lock_{kStackPoolLockRank};
  std::array<SizeClass, kClasses> classes_ ABSL_GUARDED_BY(lock_);
  bool forked_ = false;
};

// One carrier's own few stacks. Not thread-safe: the carrier's. It may move
// from one OS thread to another with what orders the two.
class StackCache {
 public:
  // `batch` stacks are taken from the pool when there are none here; 0: half of
  // what the cache keeps. For a single call outside of any carrier it is 1.
  explicit StackCache(StackPool& pool, size_t batch = 0)
      : pool_(pool), batch_(batch) {}
  ~StackCache() { Flush(); }
  StackCache(const StackCache&) = delete;
  StackCache& operator=(const StackCache&) = delete;

  // A stack with at least `size` usable bytes and a guard; what is on it is
  // undefined. Any state (see StackPool). Errors: InvalidArgument for a size
  // above kMaxStackSize; ResourceExhausted naming the limit when memory or
  // mappings run out: nothing has changed then, and it may be tried again.
  absl::StatusOr<Stack*> Get(size_t size);

  // Gives back a stack that came from any cache of the same pool. Nobody runs
  // on it (after SwitchFinally: whoever runs next does this). Never fails.
  void Put(Stack* stack);

  // Gives all to the pool, as before a long sleep.
  void Flush();

 private:
  absl::StatusOr<Stack*> GetSlow(size_t size);
  void Shrink(size_t size_class);
  static void MarkInUse(Stack* stack);
  static void MarkIdle(Stack* stack);

  StackPool& pool_;
  const size_t batch_;
  std::array<StackList, StackPool::kClasses> idle_;
};

inline void StackCache::MarkInUse(Stack* stack) {
  stack->idle_ = false;
  StackMemory::SetLeakRoot(stack->low_, stack->size(), true);
}

inline void StackCache::MarkIdle(Stack* stack) {
  STILLPOINT_DCHECK(!stack->idle_, "a stack is given back twice");
  stack->idle_ = true;
  StackMemory::SetLeakRoot(stack->low_, stack->size(), false);
}

inline absl::StatusOr<Stack*> StackCache::Get(size_t size) {
  if (size <= kMaxStackSize) [[likely]] {
    StackList& idle = idle_[StackPool::ClassOf(size)];
    if (!idle.empty()) [[likely]] {
      Stack* stack = idle.Pop();
      MarkInUse(stack);
      return stack;
    }
  }
  return GetSlow(size);
}

inline void StackCache::Put(Stack* stack) {
  MarkIdle(stack);
  const size_t size_class = stack->size_class_;
  StackList& idle = idle_[size_class];
  idle.Push(stack);
  if (idle.size() > StackPool::CacheLimit(size_class)) [[unlikely]] {
    Shrink(size_class);
  }
}

inline size_t StackPool::CacheLimit(size_t size_class) {
  // 2 MiB of stacks, and no more than 64 of them: what every carrier keeps.
  const size_t fit = (size_t{2} << 20) / (kMinStackSize << size_class);
  return fit > 64 ? 64 : fit < 2 ? 2 : fit;
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_STACK_POOL_H_
