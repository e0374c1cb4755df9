#include "runtime/green/stack_pool.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/sanitizer.h"
#include "runtime/green/stack.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/os/pages.h"
#include "runtime/os/stack_memory.h"

namespace stillpoint {
namespace {

// The first slab of a size class, and what each next one doubles up to: a
// million stacks are a few hundred mappings. (The sanitizers keep books on all
// of a mapping.)
constexpr size_t kFirstSlab = size_t{4} << 20;
#if defined(STILLPOINT_ASAN) || defined(STILLPOINT_TSAN)
constexpr size_t kLargestSlab = size_t{64} << 20;
#else
constexpr size_t kLargestSlab = size_t{1} << 30;
#endif

// What idle stacks of one size class may keep warm in the pool, if they were
// used to their last page.
constexpr size_t kWarmBytes = size_t{64} << 20;

}  // namespace

StackPool::StackPool(GuardPolicy policy) : memory_(policy) {
  STILLPOINT_CHECK(
      kStackGuardSize % static_cast<size_t>(sysconf(_SC_PAGESIZE)) == 0,
      "this system's pages are larger than the guard of a stack");
}

StackPool::~StackPool() {
  RankedMutexLock lock(lock_);
  for (size_t i = 0; i < kClasses; ++i) {
    STILLPOINT_CHECK(forked_ || classes_[i].out == 0,
                     "a pool of stacks is destroyed while stacks are in use or "
                     "in a cache: end the green threads and their carriers "
                     "first");
    UnmapAll(classes_[i].fresh, SizeOf(i) + kStackGuardSize);
    UnmapAll(classes_[i].full, SizeOf(i) + kStackGuardSize);
  }
}

void StackPool::UnmapAll(Slab* slabs, size_t stride) {
  while (slabs != nullptr) {
    Slab* next = slabs->next;
    StackMemory::Release(slabs->low, slabs->stacks * stride);
    UnmapPages(slabs, sizeof(Slab) + slabs->stacks * sizeof(Stack));
    slabs = next;
  }
}

// On systems whose pages are larger than the smallest classes these are all one
// page.
size_t StackPool::SizeOf(size_t size_class) {
  return std::max(kMinStackSize << size_class,
                  static_cast<size_t>(sysconf(_SC_PAGESIZE)));
}

size_t StackPool::WarmLimit(size_t size_class) {
  return std::max<size_t>(kWarmBytes / SizeOf(size_class), 8);
}

absl::Status StackPool::Take(size_t size_class, size_t count, StackList& list) {
  {
    RankedMutexLock lock(lock_);
    SizeClass& of = classes_[size_class];
    of.warm.MoveTo(list, count);
    of.cold.MoveTo(list, count - list.size());
    of.out += list.size();
    if (!list.empty()) return absl::OkStatus();
  }
  return Make(size_class, count, list);
}

absl::Status StackPool::Make(size_t size_class, size_t count, StackList& list) {
  StackList unguarded;
  while (true) {
    {
      RankedMutexLock lock(lock_);
      unguarded = MakeUnguarded(classes_[size_class], size_class, count);
    }
    if (!unguarded.empty()) break;
    absl::Status added = AddSlab(size_class);
    if (!added.ok()) return added;
  }
  absl::Status guarded;
  while (!unguarded.empty()) {
    Stack* stack = unguarded.Pop();
    guarded = memory_.Guard(stack->low_ - kStackGuardSize, kStackGuardSize);
    if (!guarded.ok()) {
      unguarded.Push(stack);
      break;
    }
    list.Push(stack);
  }
  RankedMutexLock lock(lock_);
  classes_[size_class].out += list.size();
  unguarded.MoveTo(classes_[size_class].bare, unguarded.size());
  // A few are better than an error.
  return list.empty() ? guarded : absl::OkStatus();
}

StackList StackPool::MakeUnguarded(SizeClass& of, size_t size_class,
                                   size_t count) {
  StackList list;
  of.bare.MoveTo(list, count);
  const size_t size = SizeOf(size_class);
  while (of.fresh != nullptr && list.size() < count) {
    Slab& slab = *of.fresh;
    const uintptr_t low =
        slab.low + slab.made * (size + kStackGuardSize) + kStackGuardSize;
    auto* stacks = reinterpret_cast<Stack*>(&slab + 1);
    list.Push(new (&stacks[slab.made])
                  Stack(low, low + size, static_cast<uint8_t>(size_class)));
    ++of.made;
    if (++slab.made == slab.stacks) {
      of.fresh = slab.next;
      slab.next = of.full;
      of.full = &slab;
    }
  }
  return list;
}

absl::Status StackPool::AddSlab(size_t size_class) {
  const size_t stride = SizeOf(size_class) + kStackGuardSize;
  size_t stacks;
  {
    RankedMutexLock lock(lock_);
    stacks = classes_[size_class].next_slab;
  }
  if (stacks == 0) stacks = std::max<size_t>(kFirstSlab / stride, 1);
  absl::StatusOr<uintptr_t> low;
  while (!(low = memory_.Reserve(stacks * stride)).ok()) {
    if (stacks == 1) return low.status();
    stacks /= 2;
  }
  void* memory = MapPages(sizeof(Slab) + stacks * sizeof(Stack));
  if (memory == nullptr) {
    StackMemory::Release(*low, stacks * stride);
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory to keep books on ", stacks,
                     " stacks; raise the limit of the address space (ulimit "
                     "-v), or have fewer green threads at once"));
  }
  // Two may add one each at the same time: both are used.
  RankedMutexLock lock(lock_);
  SizeClass& of = classes_[size_class];
  of.fresh = new (memory)
      Slab{.low = *low, .stacks = stacks, .made = 0, .next = of.fresh};
  of.next_slab = std::max(stacks, std::min(2 * stacks, kLargestSlab / stride));
  return absl::OkStatus();
}

void StackPool::Return(size_t size_class, StackList list) {
  StackList cooling;
  {
    RankedMutexLock lock(lock_);
    SizeClass& of = classes_[size_class];
    of.out -= list.size();
    const size_t limit = WarmLimit(size_class);
    if (of.warm.size() < limit) list.MoveTo(of.warm, limit - of.warm.size());
    cooling = list;
    if (cooling.empty()) return;
    // Neither here nor there meanwhile.
  }
  GiveBack(cooling);
  RankedMutexLock lock(lock_);
  cooling.MoveTo(classes_[size_class].cold, cooling.size());
}

size_t StackPool::Trim() {
  size_t trimmed = 0;
  for (size_t i = 0; i < kClasses; ++i) {
    StackList cooling;
    {
      RankedMutexLock lock(lock_);
      cooling = classes_[i].warm.CutAfter(0);
    }
    trimmed += cooling.size();
    GiveBack(cooling);
    RankedMutexLock lock(lock_);
    cooling.MoveTo(classes_[i].cold, cooling.size());
  }
  return trimmed;
}

// Neighbours, which lists often have side by side, go in one call; the guard
// between them stays.
void StackPool::GiveBack(const StackList& list) {
  uintptr_t low = 0;
  uintptr_t high = 0;
  for (const Stack* stack = list.head_; stack != nullptr;
       stack = stack->next_) {
    if (stack->high_ + kStackGuardSize == low) {
      low = stack->low_;
    } else if (high != 0 && stack->low_ - kStackGuardSize == high) {
      high = stack->high_;
    } else {
      if (high != 0) StackMemory::GiveBack(low, high - low);
      low = stack->low_;
      high = stack->high_;
    }
  }
  if (high != 0) StackMemory::GiveBack(low, high - low);
}

StackPool::Stats StackPool::stats() const {
  Stats stats;
  stats.guards_are_mappings = memory_.protects();
  RankedMutexLock lock(lock_);
  for (const SizeClass& of : classes_) {
    stats.made += of.made;
    stats.out += of.out;
    stats.warm += of.warm.size();
    stats.cold += of.cold.size();
  }
  return stats;
}

void StackPool::ResetInForkedChild() {
  lock_.ResetInForkedChild();
  forked_ = true;
}

absl::StatusOr<Stack*> StackCache::GetSlow(size_t size) {
  if (size > kMaxStackSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a stack of ", size, " bytes was asked for; the largest has ",
        kMaxStackSize, " bytes"));
  }
  const size_t size_class = StackPool::ClassOf(size);
  StackList& idle = idle_[size_class];
  const size_t batch =
      batch_ != 0 ? batch_ : (StackPool::CacheLimit(size_class) + 1) / 2;
  absl::Status taken = pool_.Take(size_class, batch, idle);
  if (!taken.ok()) return taken;
  Stack* stack = idle.Pop();
  MarkInUse(stack);
  return stack;
}

void StackCache::Shrink(size_t size_class) {
  pool_.Return(size_class, idle_[size_class].CutAfter(
                               StackPool::CacheLimit(size_class) / 2));
}

void StackCache::Flush() {
  for (size_t i = 0; i < StackPool::kClasses; ++i) {
    if (!idle_[i].empty()) pool_.Return(i, idle_[i].CutAfter(0));
  }
}

}  // namespace stillpoint
