// Per-thread data of the embedder.

#ifndef STILLPOINT_RUNTIME_THREAD_THREAD_LOCAL_SLOT_H_
#define STILLPOINT_RUNTIME_THREAD_THREAD_LOCAL_SLOT_H_

#include <cstddef>
#include <cstdint>

namespace stillpoint {

// Names one pointer in every thread of one runtime; made by
// Runtime::CreateThreadLocalSlot. A plain value.
struct ThreadLocalSlot {
  // How many a runtime can have.
  static constexpr size_t kMaxSlots = 32;

  // Runs on the exiting or detaching thread, in Native, before it leaves the
  // runtime, for a value that is not null (which is cleared first). Repeated
  // while destructors set new values, at most four rounds, like
  // pthread_key_create(3). It must not throw. An operation that has read the
  // pointer may be using it meanwhile: open a ManagedScope before freeing what
  // operations look at.
  using Destructor = void (*)(void* value);

  uint32_t index = 0;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_THREAD_LOCAL_SLOT_H_
