// The context switch: one thread of control leaves its stack, another goes on
// with its own.
//
// What Switch is made of, and why:
//
// - It is inlined, and names every register as clobbered, so that the compiler
//   saves what is alive there and nothing else, and neither a call nor a return
//   is in the way (a return whose call was on another stack is mispredicted).
//   bench/green/context_bench has the figures, beside Boost.Context's.
// - It switches what a call has to preserve, which includes the control bits of
//   the floating-point unit (System V ABI 3.2.1; AAPCS64 6.1.2 asks for the
//   same); they are loaded only where they differ.
// - It switches the C++ runtime's record of exceptions in flight, so a green
//   thread may be switched inside a handler, or inside a destructor that runs
//   while the stack is unwound (incident I3).
// - It tells ASan and TSan, so whoever switches needs not know about them.
//
// What it does not switch: errno and all else that is thread-local (compilers
// keep addresses of thread-local variables across a switch, which matters when
// a context is resumed by another OS thread); the signal mask; the state of
// SME (a switch in streaming mode, or with ZA in use, is misuse).
//
// Shadow stacks (x86 SHSTK, Arm GCS) are not switched: CheckContextSupport
// refuses a process that runs with one. context_start.S is not marked as fit
// for them, so a linker does not mark the program either, and glibc leaves them
// off. (So is clang's -fsanitize=shadow-call-stack misuse.) Indirect-branch
// targets are marked (IBT, BTI).

#ifndef STILLPOINT_RUNTIME_GREEN_CONTEXT_H_
#define STILLPOINT_RUNTIME_GREEN_CONTEXT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/base/sanitizer.h"
#include "runtime/green/exception_state.h"
#include "runtime/os/os_thread.h"

#if defined(STILLPOINT_ASAN) || defined(STILLPOINT_TSAN)
#define STILLPOINT_FIBERS_INSTRUMENTED 1
#endif

// Functions that change sides: a sanitizer's calls in them would come before
// the change on one side and after it on the other (incident I7).
#if !defined(STILLPOINT_FIBERS_INSTRUMENTED)
#define STILLPOINT_UNINSTRUMENTED
#elif defined(__clang__)
#define STILLPOINT_UNINSTRUMENTED \
  __attribute__((disable_sanitizer_instrumentation))
#else
#define STILLPOINT_UNINSTRUMENTED \
  __attribute__((no_sanitize_address, no_sanitize_thread))
#endif

namespace stillpoint {

// Whether contexts can be switched in this process: no shadow stack is on, and
// the C++ runtime keeps its exceptions as exception_state.h believes. Otherwise
// FailedPrecondition with the remedy. Any thread; throws and catches one
// exception of its own, some microseconds.
absl::Status CheckContextSupport();

// A stack and where to go on with it. Plain memory without a destructor: it may
// lie in memory that is reused. The owner keeps it in place while it is
// prepared, running or suspended.
//
// A context is idle (nothing prepared), suspended (prepared or left by Switch),
// or running. One OS thread runs one context at a time. A suspended context may
// be resumed by another OS thread than the one that left it, provided that what
// the first did happens before (a lock, or release and acquire, between).
class Context {
 public:
  using Entry = void (*)(void* argument);

  // Makes this the running context of the calling OS thread: its own stack. To
  // be done once, before the first switch on that thread, by that thread.
  void AdoptThread();

  // Makes this, which is idle, a suspended context that will run
  // entry(argument) on `stack`. `entry` may not return, it ends with
  // SwitchFinally; an exception that leaves it is std::terminate. It begins
  // with the caller's floating-point control bits and no exception in flight.
  // Touches no page of the stack.
  void Prepare(StackBounds stack, Entry entry, void* argument);

  // Leaves `from`, the running context of this OS thread, suspended, and
  // resumes `to`, which is suspended. Returns when somebody resumes `from`.
  // A full compiler barrier for memory.
  static void Switch(Context& from, Context& to);

  // The same for the last time: `from` is idle when `to` runs, and its stack is
  // free from then on; `to` (or what runs after it on this OS thread) is who
  // may give it away. The exceptions that `from` has in flight are lost.
  [[noreturn]] static void SwitchFinally(Context& from, Context& to);

  // Makes this, which is suspended and will never be resumed, idle. What lives
  // on its stack is not destroyed.
  void Discard();

  // For whoever looks at a suspended context: a scan for roots, a debugger.
  // All that it keeps is on its stack at or above scan_begin(), or in
  // registers(). With sp, fp, bx and pc in the machine's registers, an unwinder
  // or debugger sees its frames as if it had just been interrupted there.
#if defined(__x86_64__)
  static constexpr size_t kRedZone = 128;  // System V ABI, 3.2.2
#elif defined(__aarch64__)
  static constexpr size_t kRedZone = 0;
#else
#error "Stillpoint supports x86-64 and aarch64"
#endif
  static constexpr size_t kRegisters = 2;
  // The frame pointer and the register that compilers use as a second base
  // (rbx, x19): the two that a switch does not name as clobbered.
  const uintptr_t* registers() const { return registers_; }
  uintptr_t stack_pointer() const { return sp_; }
  uintptr_t scan_begin() const { return sp_ - kRedZone; }
  uintptr_t program_counter() const { return pc_; }

  // Where the words are, for the assembly below and for debuggers.
  static constexpr size_t kStackPointerOffset = 0;
  static constexpr size_t kProgramCounterOffset = 8;
  static constexpr size_t kFramePointerOffset = 16;
  static constexpr size_t kBaseRegisterOffset = 24;

 private:
  // The bits that a call preserves.
  struct FloatControl {
#if defined(__x86_64__)
    uint32_t mxcsr = 0;
    uint16_t x87 = 0;
#else
    uint64_t fpcr = 0;
#endif
  };

  [[gnu::always_inline]] STILLPOINT_UNINSTRUMENTED static void
  SwitchFloatControl(Context& from, Context& to);
  [[gnu::always_inline]] STILLPOINT_UNINSTRUMENTED static void SwitchExceptions(
      Context& from, Context& to);
  [[gnu::always_inline]] STILLPOINT_UNINSTRUMENTED static void SwitchStacks(
      Context& from, Context& to);

#if defined(STILLPOINT_FIBERS_INSTRUMENTED)
  static void BeforeSwitch(Context& from, Context& to, bool finally);
  static void AfterSwitch(Context& self);
  static void RunInstrumented(void* self);
#endif

  uintptr_t sp_ = 0;
  uintptr_t pc_ = 0;
  uintptr_t registers_[kRegisters] = {};
  FloatControl float_control_;
  // While suspended: its own. While running: nothing of interest.
  ExceptionState exceptions_;
  // While running: the record of the OS thread that it runs on. It is handed
  // from context to context, which costs less than asking, and cannot go stale:
  // a switch never changes the OS thread.
  ExceptionState* thread_exceptions_ = nullptr;

#if defined(STILLPOINT_FIBERS_INSTRUMENTED)
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
#endif
#if defined(STILLPOINT_ASAN)
  void* fake_stack_ = nullptr;       // while suspended
  const void* stack_low_ = nullptr;  // of a thread's own: known once left
  size_t stack_size_ = 0;
  Context* resumed_by_ = nullptr;
#endif
#if defined(STILLPOINT_TSAN)
  void* fiber_ = nullptr;
#endif
};

inline void Context::SwitchFloatControl(Context& from, Context& to) {
#if defined(__x86_64__)
  // The lower six bits say what has happened, not what is to be done.
  constexpr uint32_t kStatus = 0x3f;
  asm volatile("stmxcsr %0" : "=m"(from.float_control_.mxcsr));
  asm volatile("fnstcw %0" : "=m"(from.float_control_.x87));
  if ((((from.float_control_.mxcsr ^ to.float_control_.mxcsr) & ~kStatus) |
       (from.float_control_.x87 ^ to.float_control_.x87)) != 0) [[unlikely]] {
    asm volatile("ldmxcsr %0" : : "m"(to.float_control_.mxcsr));
    asm volatile("fldcw %0" : : "m"(to.float_control_.x87));
  }
#else
  asm volatile("mrs %0, fpcr" : "=r"(from.float_control_.fpcr));
  if (from.float_control_.fpcr != to.float_control_.fpcr) [[unlikely]] {
    asm volatile("msr fpcr, %0" : : "r"(to.float_control_.fpcr));
  }
#endif
}

inline void Context::SwitchExceptions(Context& from, Context& to) {
  STILLPOINT_DCHECK(from.thread_exceptions_ != nullptr,
                    "a switch from a context that is not running");
  STILLPOINT_DCHECK(to.thread_exceptions_ == nullptr && to.sp_ != 0,
                    "a switch to a context that is not suspended");
  ExceptionState* thread = from.thread_exceptions_;
  from.exceptions_ = *thread;
  *thread = to.exceptions_;
  to.thread_exceptions_ = thread;
  from.thread_exceptions_ = nullptr;
}

// An unwinder that interrupts between the new frame pointer and the jump would
// take one context's frames for the other's; before those two instructions this
// frame is the outermost.
#if defined(__GCC_HAVE_DWARF2_CFI_ASM)
#define STILLPOINT_CFI_OUTERMOST(return_column) \
  ".cfi_remember_state\n\t"                     \
  ".cfi_undefined " return_column "\n\t"
#define STILLPOINT_CFI_RESTORE ".cfi_restore_state\n\t"
#else
#define STILLPOINT_CFI_OUTERMOST(return_column)
#define STILLPOINT_CFI_RESTORE
#endif

inline void Context::SwitchStacks(Context& from, Context& to) {
  static_assert(offsetof(Context, sp_) == kStackPointerOffset);
  static_assert(offsetof(Context, pc_) == kProgramCounterOffset);
  static_assert(offsetof(Context, registers_) == kFramePointerOffset);
  static_assert(kBaseRegisterOffset == kFramePointerOffset + 8);
  // The frame pointer, and the second base pointer that clang uses in frames
  // with an over-aligned variable and an array of variable size, cannot be
  // named as clobbered; they are saved by hand.
#if defined(__x86_64__)
  Context* from_pointer = &from;
  Context* to_pointer = &to;
  asm volatile(
      "leaq 1f(%%rip), %%rax\n\t"
      "movq %%rsp, 0(%%rdi)\n\t"
      "movq %%rax, 8(%%rdi)\n\t"
      "movq %%rbp, 16(%%rdi)\n\t"
      "movq %%rbx, 24(%%rdi)\n\t"
      "movq 8(%%rsi), %%rax\n\t"
      "movq 24(%%rsi), %%rbx\n\t"
      "movq 16(%%rsi), %%rbp\n\t"
      // clang-format off
      STILLPOINT_CFI_OUTERMOST("rip")
      // clang-format on
      "movq 0(%%rsi), %%rsp\n\t"
      "jmpq *%%rax\n\t"
      // clang-format off
      STILLPOINT_CFI_RESTORE
      // clang-format on
      ".p2align 4\n\t"
      "1:\n\t"
#if defined(__CET__) && (__CET__ & 1) != 0
      "endbr64\n\t"
#endif
      : "+D"(from_pointer), "+S"(to_pointer)
      :
      : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
        "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
        "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
#if defined(__AVX512F__)
        "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23",
        "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31",
        "k1", "k2", "k3", "k4", "k5", "k6", "k7",
#endif
        "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)",
        "cc", "memory");
#else
  register Context* from_pointer asm("x0") = &from;
  register Context* to_pointer asm("x1") = &to;
  asm volatile(
      "adr x10, 1f\n\t"
      "mov x9, sp\n\t"
      "stp x9, x10, [x0, #0]\n\t"
      "stp x29, x19, [x0, #16]\n\t"
      "ldp x9, x16, [x1, #0]\n\t"
      "ldp x29, x19, [x1, #16]\n\t"
      // clang-format off
      STILLPOINT_CFI_OUTERMOST("x30")
      // clang-format on
      "mov sp, x9\n\t"
      "br x16\n\t"
      // clang-format off
      STILLPOINT_CFI_RESTORE
      // clang-format on
      "1:\n\t"
      "hint #36\n\t"  // bti j
      : "+r"(from_pointer), "+r"(to_pointer)
      :
      : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12",
        "x13", "x14", "x15", "x16", "x17", "x18", "x20", "x21", "x22", "x23",
        "x24", "x25", "x26", "x27", "x28", "x30", "v0", "v1", "v2", "v3", "v4",
        "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15",
        "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25",
        "v26", "v27", "v28", "v29", "v30", "v31",
#if defined(__ARM_FEATURE_SVE)
        "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10",
        "p11", "p12", "p13", "p14", "p15",
#endif
        "cc", "memory");
#endif
}

#undef STILLPOINT_CFI_OUTERMOST
#undef STILLPOINT_CFI_RESTORE

#if !defined(STILLPOINT_FIBERS_INSTRUMENTED)

[[gnu::always_inline]] inline void Context::Switch(Context& from, Context& to) {
  SwitchExceptions(from, to);
  SwitchFloatControl(from, to);
  SwitchStacks(from, to);
}

#endif

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_GREEN_CONTEXT_H_
