#include "runtime/os/frame_walk.h"

#include <cstddef>
#include <cstdint>

#include "runtime/os/os_thread.h"

namespace stillpoint {

// Not instrumented: it reads stacks as plain memory.
__attribute__((no_sanitize("address"), no_sanitize("thread"))) size_t
WalkFrames(uintptr_t frame, const StackBounds& stack, uintptr_t* frames,
           size_t most) {
  size_t count = 0;
  // A frame begins with the caller's frame pointer and the return address.
  while (count < most && frame >= stack.low && frame < stack.high &&
         stack.high - frame >= 2 * sizeof(uintptr_t) &&
         frame % sizeof(uintptr_t) == 0) {
    const auto* words = reinterpret_cast<const uintptr_t*>(frame);
    if (words[1] == 0) break;
    frames[count++] = words[1];
    if (words[0] <= frame) break;
    frame = words[0];
  }
  return count;
}

}  // namespace stillpoint
