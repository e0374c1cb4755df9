// Spilling the registers that may hold the only copy of a managed pointer.

#ifndef STILLPOINT_RUNTIME_THREAD_SAVED_CONTEXT_H_
#define STILLPOINT_RUNTIME_THREAD_SAVED_CONTEXT_H_

#include <cstddef>
#include <cstdint>

namespace stillpoint {

// The callee-saved registers and the stack pointer of a thread at the moment it
// left Managed. Every root that its frames hold is in `registers` or on its
// stack at or above scan_begin().
struct SavedContext {
#if defined(__x86_64__)
  static constexpr size_t kRegisters = 6;  // rbx rbp r12 r13 r14 r15
  static constexpr size_t kRedZone = 128;  // System V ABI, 3.2.2
#elif defined(__aarch64__)
  static constexpr size_t kRegisters = 11;  // x19..x28 and the frame pointer
  static constexpr size_t kRedZone = 0;
#else
#error "Stillpoint supports x86-64 and aarch64"
#endif
  uintptr_t registers[kRegisters] = {};
  uintptr_t stack_pointer = 0;  // 0: this thread has no managed frames

  // The frame pointer among them: where a walk over the frames begins.
  uintptr_t frame_pointer() const {
#if defined(__x86_64__)
    return registers[1];
#else
    return registers[10];
#endif
  }

  // Where a scan of the stack begins: leaf functions keep values below the
  // stack pointer, in the red zone.
  uintptr_t scan_begin() const {
    return stack_pointer == 0 ? 0 : stack_pointer - kRedZone;
  }
};

// Fills `context`. Inlined into the frame that leaves Managed. The clobbers
// name every register that a call may overwrite and a compiler keeps pointers
// in, so that a value that is alive across this point sits in a callee-saved
// register or on the stack when they are written. (Not named: x87, mask and the
// upper 16 vector registers of AVX-512, where no compiler keeps a pointer.)
[[gnu::always_inline]] inline void SaveContext(SavedContext& context) {
#if defined(__x86_64__)
  asm volatile(
      "movq %%rbx, 0(%0)\n\t"
      "movq %%rbp, 8(%0)\n\t"
      "movq %%r12, 16(%0)\n\t"
      "movq %%r13, 24(%0)\n\t"
      "movq %%r14, 32(%0)\n\t"
      "movq %%r15, 40(%0)\n\t"
      "movq %%rsp, 48(%0)\n\t"
      :
      : "r"(&context)
      : "memory", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11",
        "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
        "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  static_assert(offsetof(SavedContext, stack_pointer) == 48);
#else
  asm volatile(
      "stp x19, x20, [%0, #0]\n\t"
      "stp x21, x22, [%0, #16]\n\t"
      "stp x23, x24, [%0, #32]\n\t"
      "stp x25, x26, [%0, #48]\n\t"
      "stp x27, x28, [%0, #64]\n\t"
      "mov x9, sp\n\t"
      "stp x29, x9, [%0, #80]\n\t"
      :
      : "r"(&context)
      : "memory", "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9",
        "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x30", "v0",
        "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11",
        "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21",
        "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
  static_assert(offsetof(SavedContext, stack_pointer) == 88);
#endif
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_SAVED_CONTEXT_H_
