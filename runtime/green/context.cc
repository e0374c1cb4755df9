#include "runtime/green/context.h"

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/check.h"
#include "runtime/base/sanitizer.h"
#include "runtime/green/exception_state.h"
#include "runtime/os/os_thread.h"

#if defined(STILLPOINT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(STILLPOINT_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

extern "C" {

// context_start.S
void stillpoint_context_start();

[[noreturn, gnu::used]] void stillpoint_context_returned() {
  stillpoint::Die(
      {"the entry function of a context returned: it must end with "
       "Context::SwitchFinally"});
}

}  // extern "C"

namespace stillpoint {
namespace {

// The address of this thread's shadow stack; 0 where there is none.
uintptr_t ShadowStackPointer() {
  uintptr_t pointer = 0;
#if defined(__x86_64__)
  // A no-operation on processors without shadow stacks, and while they are off.
  asm volatile("rdsspq %0" : "+r"(pointer));
#else
  // CHKFEAT: clears bit 0 where a guarded control stack is on; a no-operation
  // on processors that have none.
  register uintptr_t feature asm("x16") = 1;
  asm volatile("hint #40" : "+r"(feature));
  pointer = feature == 0 ? 1 : 0;
#endif
  return pointer;
}

}  // namespace

absl::Status CheckContextSupport() {
  if (ShadowStackPointer() != 0) {
    return absl::FailedPreconditionError(
        "this process runs with a shadow stack, which green threads do not "
        "switch; start it with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off (on Arm: "
        "glibc.cpu.aarch64_gcs=0)");
  }
  return CheckExceptionState();
}

void Context::AdoptThread() {
  *this = Context();
  thread_exceptions_ = ThreadExceptionState();
#if defined(STILLPOINT_TSAN)
  fiber_ = __tsan_get_current_fiber();
#endif
}

void Context::Prepare(StackBounds stack, Entry entry, void* argument) {
  STILLPOINT_DCHECK(thread_exceptions_ == nullptr,
                    "a running context is prepared anew");
  *this = Context();
  // Both ABIs want 16 bytes; context_start.S calls, which on x86-64 pushes the
  // return address.
  sp_ = stack.high & ~uintptr_t{15};
  pc_ = reinterpret_cast<uintptr_t>(&stillpoint_context_start);
#if defined(STILLPOINT_FIBERS_INSTRUMENTED)
  entry_ = entry;
  argument_ = argument;
  entry = &Context::RunInstrumented;
  argument = this;
#endif
#if defined(STILLPOINT_ASAN)
  stack_low_ = reinterpret_cast<const void*>(stack.low);
  stack_size_ = stack.high - stack.low;
  // Frames that a former owner never left.
  __asan_unpoison_memory_region(stack_low_, stack_size_);
#endif
#if defined(STILLPOINT_TSAN)
  fiber_ = __tsan_create_fiber(/*flags=*/0);
#endif
  registers_[0] = reinterpret_cast<uintptr_t>(argument);
  registers_[1] = reinterpret_cast<uintptr_t>(entry);
#if defined(__x86_64__)
  asm volatile("stmxcsr %0" : "=m"(float_control_.mxcsr));
  asm volatile("fnstcw %0" : "=m"(float_control_.x87));
#else
  asm volatile("mrs %0, fpcr" : "=r"(float_control_.fpcr));
#endif
}

#if !defined(STILLPOINT_FIBERS_INSTRUMENTED)

void Context::SwitchFinally(Context& from, Context& to) {
  SwitchExceptions(from, to);
  SwitchFloatControl(from, to);
  SwitchStacks(from, to);
  Die({"a context was resumed after its last switch"});
}

void Context::Discard() {
  STILLPOINT_DCHECK(thread_exceptions_ == nullptr,
                    "a running context is discarded");
  *this = Context();
}

#else

[[gnu::noinline]] STILLPOINT_UNINSTRUMENTED void Context::BeforeSwitch(
    [[maybe_unused]] Context& from, [[maybe_unused]] Context& to,
    [[maybe_unused]] bool finally) {
#if defined(STILLPOINT_ASAN)
  // Without a place for it, the fake stack of `from` is destroyed (and with a
  // null there, later, not the thread's: incident I7).
  __sanitizer_start_switch_fiber(finally ? nullptr : &from.fake_stack_,
                                 to.stack_low_, to.stack_size_);
  to.resumed_by_ = finally ? nullptr : &from;
#endif
#if defined(STILLPOINT_TSAN)
  __tsan_switch_to_fiber(to.fiber_, /*flags=*/0);
  // Nothing that TSan sees runs on `from` any more.
  if (finally) __tsan_destroy_fiber(from.fiber_);
#endif
}

[[gnu::noinline]] STILLPOINT_UNINSTRUMENTED void Context::AfterSwitch(
    [[maybe_unused]] Context& self) {
#if defined(STILLPOINT_ASAN)
  const void* low = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(self.fake_stack_, &low, &size);
  self.fake_stack_ = nullptr;
  // An OS thread's own stack is described by the first switch that leaves it.
  if (self.resumed_by_ != nullptr && self.resumed_by_->stack_low_ == nullptr) {
    self.resumed_by_->stack_low_ = low;
    self.resumed_by_->stack_size_ = size;
  }
#endif
}

void Context::RunInstrumented(void* self) {
  Context& context = *static_cast<Context*>(self);
  AfterSwitch(context);
  context.entry_(context.argument_);
}

[[gnu::noinline]] STILLPOINT_UNINSTRUMENTED void Context::Switch(Context& from,
                                                                 Context& to) {
  SwitchExceptions(from, to);
  SwitchFloatControl(from, to);
  BeforeSwitch(from, to, /*finally=*/false);
  SwitchStacks(from, to);
  AfterSwitch(from);
}

[[gnu::noinline]] STILLPOINT_UNINSTRUMENTED void Context::SwitchFinally(
    Context& from, Context& to) {
  SwitchExceptions(from, to);
  SwitchFloatControl(from, to);
  BeforeSwitch(from, to, /*finally=*/true);
  SwitchStacks(from, to);
  Die({"a context was resumed after its last switch"});
}

[[gnu::noinline]] STILLPOINT_UNINSTRUMENTED void Context::Discard() {
  STILLPOINT_DCHECK(thread_exceptions_ == nullptr,
                    "a running context is discarded");
#if defined(STILLPOINT_ASAN)
  if (fake_stack_ != nullptr) {
    // Only the fake stack that is in use can be destroyed: this thread takes it
    // on, and leaves it for good.
    void* own = nullptr;
    const void* low = nullptr;
    size_t size = 0;
    __sanitizer_start_switch_fiber(&own, stack_low_, stack_size_);
    __sanitizer_finish_switch_fiber(fake_stack_, &low, &size);
    __sanitizer_start_switch_fiber(nullptr, low, size);
    __sanitizer_finish_switch_fiber(own, nullptr, nullptr);
  }
#endif
#if defined(STILLPOINT_TSAN)
  if (fiber_ != nullptr) __tsan_destroy_fiber(fiber_);
#endif
  *this = Context();
}

#endif

}  // namespace stillpoint
