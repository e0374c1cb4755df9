// The example to copy: a runtime, two interpreter threads that poll, a blocking
// call in a safe region, and one VM operation that looks at every thread.

#include <sched.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/stillpoint.h"

namespace {

using stillpoint::ManagedScope;
using stillpoint::NativeScope;
using stillpoint::Poll;
using stillpoint::Runtime;
using stillpoint::StoppedThread;
using stillpoint::Thread;
using stillpoint::ThreadHandle;
using stillpoint::ThreadLocalSlot;
using stillpoint::World;

enum class Op { kAdd, kJumpIfSmaller, kSleep, kReturn };

struct Instruction {
  Op op;
  int64_t operand;
};

// Counts to a million, sleeps, and does it all again a few times.
constexpr std::array kProgram = {
    Instruction{Op::kAdd, 1},    Instruction{Op::kJumpIfSmaller, 1'000'000},
    Instruction{Op::kSleep, 20}, Instruction{Op::kJumpIfSmaller, 1'000'005},
    Instruction{Op::kReturn, 0},
};

// What the collector of a real language would look for: the roots of a thread.
struct Frame {
  int64_t accumulator = 0;
};

void SleepMillis(int64_t millis) {
  // Native code: a stop does not wait for it. Nothing managed is touched here.
  NativeScope native;
  timespec duration = {millis / 1000, millis % 1000 * 1'000'000};
  nanosleep(&duration, nullptr);
}

std::atomic<int> running{0};  // interpreters that have begun

int64_t Interpret(Thread& self, Frame& frame) {
  size_t pc = 0;
  while (true) {
    const Instruction& now = kProgram[pc++];
    switch (now.op) {
      case Op::kAdd:
        frame.accumulator += now.operand;
        break;
      case Op::kJumpIfSmaller:
        if (frame.accumulator < now.operand) {
          pc = 0;
          Poll(self);  // every backward jump polls
        }
        break;
      case Op::kSleep:
        SleepMillis(now.operand);
        break;
      case Op::kReturn:
        return frame.accumulator;
    }
  }
}

void RunThread(ThreadLocalSlot frame_slot) {
  Thread& self = Thread::CurrentOrDie();
  Frame frame;
  ManagedScope managed(self);  // may touch managed data from here on
  self.set_local(frame_slot, &frame);
  running.fetch_add(1);
  const int64_t result = Interpret(self, frame);
  {
    NativeScope native(self);  // printing may block
    std::printf("%s: returned %lld\n", std::string(self.name()).c_str(),
                static_cast<long long>(result));
  }
  // In Managed, so that no operation is looking at the frame just now.
  self.set_local(frame_slot, nullptr);
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

int main() {
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create();
  if (!runtime.ok()) return Fail(runtime.status());

  absl::StatusOr<ThreadLocalSlot> frame_slot =
      (*runtime)->CreateThreadLocalSlot();
  if (!frame_slot.ok()) return Fail(frame_slot.status());

  std::array<ThreadHandle, 2> threads;
  for (size_t i = 0; i < threads.size(); ++i) {
    absl::StatusOr<ThreadHandle> started =
        (*runtime)->Start({"interpreter-" + std::to_string(i), 0},
                          [slot = *frame_slot] { RunThread(slot); });
    if (!started.ok()) return Fail(started.status());
    threads[i] = *started;
  }

  // So that there is something to see.
  while (running.load() < static_cast<int>(threads.size())) sched_yield();

  // The world stands still in here: a collector would mark from each frame.
  const absl::Status looked =
      (*runtime)->AtSafepoint("look at every thread", [&](World& world) {
        world.ForEachThread([&](const StoppedThread& thread) {
          const auto* frame =
              static_cast<const Frame*>(thread.local(*frame_slot));
          std::printf("%s is %s, accumulator %lld\n",
                      std::string(thread.name()).c_str(),
                      std::string(ThreadStateName(thread.state())).c_str(),
                      frame == nullptr
                          ? 0LL
                          : static_cast<long long>(frame->accumulator));
        });
      });
  if (!looked.ok()) return Fail(looked);

  for (const ThreadHandle& thread : threads) {
    if (absl::Status joined = thread.Join(); !joined.ok()) return Fail(joined);
  }
  return 0;
}
