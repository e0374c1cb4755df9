#include <cstdio>

#include "runtime/stillpoint.h"

int main() {
  using namespace stillpoint;
  auto runtime = Runtime::Create();
  if (!runtime.ok()) return 1;
  // An interpreter: Managed while it runs the program, and polling.
  auto thread = (*runtime)->Start({"interpreter", 0}, [] {
    Thread& self = Thread::CurrentOrDie();
    ManagedScope managed(self);
    long steps = 0;
    while (!self.interrupted()) {
      ++steps;     // one step of the program
      Poll(self);  // one load and one branch: stops here if asked to
    }
    NativeScope native(self);  // printing may block: stop without us
    std::printf("interrupted after some steps: %d\n", steps > 0);
  });
  if (!thread.ok()) return 1;
  // A VM operation: runs while no thread is in Managed. A collector goes here.
  absl::Status done = (*runtime)->AtSafepoint("look", [](World& world) {
    world.ForEachThread([](const StoppedThread& stopped) {
      std::printf("%.*s: roots in %zu registers and %zu bytes of stack\n",
                  static_cast<int>(stopped.name().size()),
                  stopped.name().data(), stopped.registers().size(),
                  stopped.scan_begin() == 0
                      ? size_t{0}
                      : stopped.stack().high - stopped.scan_begin());
    });
  });
  thread->Interrupt();
  return done.ok() && thread->Join().ok() ? 0 : 1;
}
