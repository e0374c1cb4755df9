#include <cstdio>
#include <string>

#include "runtime/stillpoint.h"

int main() {
  using namespace stillpoint;
  auto runtime = Runtime::Create();
  if (!runtime.ok()) return 1;
  // An interpreter: Managed while it runs the program, and polling.
  auto thread = (*runtime)->Start({"interpreter", 0}, [] {
    Thread& self = Thread::CurrentOrDie();
    ManagedScope managed(self);
    // A step of the program; then one load and one branch: stop if asked to.
    while (!self.interrupted()) Poll(self);
    NativeScope native(self);  // printing may block: stop without us
    std::printf("interrupted\n");
  });
  if (!thread.ok()) return 1;
  // A VM operation: runs while no thread is in Managed. A collector goes here.
  auto done = (*runtime)->AtSafepoint("look", [](World& world) {
    world.ForEachThread([](const StoppedThread& stopped) {
      std::printf("%s: scan %#zx to %#zx\n",
                  std::string(stopped.name()).c_str(), stopped.scan_begin(),
                  stopped.stack().high);
    });
  });
  thread->Interrupt();
  return done.ok() && thread->Join().ok() ? 0 : 1;
}
