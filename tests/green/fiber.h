// The least that runs a function on a context of its own.

#ifndef STILLPOINT_TESTS_GREEN_FIBER_H_
#define STILLPOINT_TESTS_GREEN_FIBER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/green/context.h"
#include "runtime/os/os_thread.h"
#include "runtime/os/pages.h"

namespace stillpoint::testing {

class TestStack {
 public:
  static constexpr size_t kSize = 256 << 10;

  TestStack() : low_(MapPages(kSize)) {
    STILLPOINT_CHECK(low_ != nullptr, "no memory for the stack of a test");
  }
  ~TestStack() { UnmapPages(low_, kSize); }
  TestStack(const TestStack&) = delete;
  TestStack& operator=(const TestStack&) = delete;

  StackBounds bounds() const {
    const auto low = reinterpret_cast<uintptr_t>(low_);
    return {.low = low, .high = low + kSize};
  }

 private:
  void* low_;
};

// Runs `body` when it is resumed. Whoever resumed it last is who it goes back
// to.
class Fiber {
 public:
  using Body = std::function<void(Fiber&)>;

  Fiber(Context& resumer, Body body)
      : own_(new TestStack),
        stack_(own_->bounds()),
        resumer_(&resumer),
        body_(std::move(body)) {
    context_.Prepare(stack_, &Fiber::Run, this);
  }
  Fiber(Context& resumer, StackBounds stack, Body body)
      : stack_(stack), resumer_(&resumer), body_(std::move(body)) {
    context_.Prepare(stack_, &Fiber::Run, this);
  }
  ~Fiber() { delete own_; }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void Resume() { Context::Switch(*resumer_, context_); }
  void ResumeFrom(Context& resumer) {
    resumer_ = &resumer;
    Context::Switch(resumer, context_);
  }

  // From within.
  void Leave() { Context::Switch(context_, *resumer_); }

  bool done() const { return done_; }
  Context& context() { return context_; }
  const Context& context() const { return context_; }
  StackBounds stack() const { return stack_; }

 private:
  static void Run(void* self) {
    auto* fiber = static_cast<Fiber*>(self);
    fiber->body_(*fiber);
    fiber->done_ = true;
    Context::SwitchFinally(fiber->context_, *fiber->resumer_);
  }

  TestStack* own_ = nullptr;
  StackBounds stack_;
  Context* resumer_;
  Body body_;
  bool done_ = false;
  Context context_;
};

}  // namespace stillpoint::testing

#endif  // STILLPOINT_TESTS_GREEN_FIBER_H_
