// Return addresses by frame pointers.

#ifndef STILLPOINT_RUNTIME_OS_FRAME_WALK_H_
#define STILLPOINT_RUNTIME_OS_FRAME_WALK_H_

#include <cstddef>
#include <cstdint>

#include "runtime/os/os_thread.h"

namespace stillpoint {

// Follows frame pointers from `frame` outwards and stores the return addresses,
// at most `most`; returns how many. Reads inside `stack` only, each frame
// further out than the last, and takes no lock and no memory: may be called in
// a signal handler. The stack must not change meanwhile. Code compiled without
// frame pointers (-fno-omit-frame-pointer) is left out or ends the walk.
size_t WalkFrames(uintptr_t frame, const StackBounds& stack, uintptr_t* frames,
                  size_t most);

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OS_FRAME_WALK_H_
