// The stack of a green thread, as the pool gives it out.

#ifndef STILLPOINT_RUNTIME_GREEN_STACK_H_
#define STILLPOINT_RUNTIME_GREEN_STACK_H_

#include <cstddef>
#include <cstdint>

#include "runtime/base/sanitizer.h"
#include "runtime/os/os_thread.h"

namespace stillpoint {

// Usable sizes. What is asked for is rounded up to a power of two in this
// range. A signal handler that runs on the stack of whom it interrupts (one
// installed without SA_ONSTACK) needs room there as well: the kernel alone puts
// getauxval(AT_MINSIGSTKSZ) bytes on it, 11 KiB and more on processors with
// large register files, and the smallest stacks have no room for that.
inline constexpr size_t kMinStackSize = size_t{8} << 10;
inline constexpr size_t kMaxStackSize = size_t{8} << 20;

// Enough for what C libraries do in one call (formatting numbers, resolving
// names and symbols, unwinding, a signal frame) below some tens of the
// embedder's own frames. It costs address space and page tables only: what is
// resident is what was touched, one page for a thread that does little. Code
// with a sanitizer's redzones needs a multiple of that.
#if defined(STILLPOINT_ASAN) || defined(STILLPOINT_TSAN)
inline constexpr size_t kDefaultStackSize = size_t{256} << 10;
#else
inline constexpr size_t kDefaultStackSize = size_t{64} << 10;
#endif

// Below each stack. A frame of this size or less that does not fit hits it. A
// larger one may step over it, unless it is touched in the order of its
// addresses: code compiled with -fstack-clash-protection does that, and is
// always caught.
inline constexpr size_t kStackGuardSize = size_t{64} << 10;

// Lives as long as its pool, in the pool's memory.
class Stack {
 public:
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  StackBounds bounds() const { return {.low = low_, .high = high_}; }
  size_t size() const { return high_ - low_; }

  // Whether `address` is in the guard below.
  bool IsGuarding(uintptr_t address) const {
    return address < low_ && address >= low_ - kStackGuardSize;
  }

 private:
  friend class StackPool;
  friend class StackList;
  friend class StackCache;

  Stack(uintptr_t low, uintptr_t high, uint8_t size_class)
      : low_(low), high_(high), size_class_(size_class) {}

  uintptr_t low_;
  uintptr_t high_;
  Stack* next_ = nullptr;  // in a list of idle ones
  uint8_t size_class_;
  bool idle_ = true;
};

// Idle stacks, last in, first out.
class StackList {
 public:
  bool empty() const { return head_ == nullptr; }
  size_t size() const { return size_; }

  void Push(Stack* stack) {
    stack->next_ = head_;
    head_ = stack;
    ++size_;
  }

  // Needs one.
  Stack* Pop() {
    Stack* stack = head_;
    head_ = stack->next_;
    --size_;
    return stack;
  }

  // Moves up to `count` of the newest of this to `to`.
  void MoveTo(StackList& to, size_t count) {
    for (; count > 0 && !empty(); --count) to.Push(Pop());
  }

  // Leaves the `count` newest here, if there are so many, and returns the
  // others.
  StackList CutAfter(size_t count) {
    StackList rest;
    Stack** end = &head_;
    size_t kept = 0;
    for (; kept < count && *end != nullptr; ++kept) end = &(*end)->next_;
    rest.head_ = *end;
    rest.size_ = size_ - kept;
    *end = nullptr;
    size_ = kept;
    return rest;
  }

 private:
  friend class StackPool;

  Stack* head_ = nullptr;
  size_t size_ = 0;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_STACK_H_
