// The states of a thread as the safepoint sees it.

#ifndef STILLPOINT_RUNTIME_BASE_THREAD_STATE_H_
#define STILLPOINT_RUNTIME_BASE_THREAD_STATE_H_

#include <cstdint>
#include <string_view>

namespace stillpoint {

// The world may stop without a thread in any state but kManaged. The values are
// part of the ABI: tools read them. A JIT goes through the scopes, which do
// more than store a state.
enum class ThreadState : uint32_t {
  kVacant = 0,      // no thread has been published in the slot yet
  kNew = 1,         // registered; its OS thread does not run our code yet
  kNative = 2,      // runs code that touches no managed data
  kManaged = 3,     // may touch managed data: the only unsafe state
  kBlocked = 4,     // waits inside the runtime
  kTerminated = 5,  // past its last managed code; stays until the slot's next
  kCarrier = 6,     // an OS thread that runs green threads: what it runs has a
                    // state of its own, and is what a stop looks at
};

enum class ThreadKind : uint8_t {
  kNative,   // an OS thread
  kGreen,    // scheduled by the runtime on its carriers
  kCarrier,  // an OS thread of the runtime's own, which carries green ones
};

constexpr bool IsSafe(ThreadState state) {
  return state != ThreadState::kManaged;
}

// Whether a thread in this state belongs to the stopped world.
constexpr bool IsMember(ThreadState state) {
  return state != ThreadState::kVacant && state != ThreadState::kTerminated &&
         state != ThreadState::kCarrier;
}

constexpr std::string_view ThreadKindName(ThreadKind kind) {
  switch (kind) {
    case ThreadKind::kNative:
      return "native";
    case ThreadKind::kGreen:
      return "green";
    case ThreadKind::kCarrier:
      return "carrier";
  }
  return "?";
}

constexpr std::string_view ThreadStateName(ThreadState state) {
  switch (state) {
    case ThreadState::kVacant:
      return "Vacant";
    case ThreadState::kNew:
      return "New";
    case ThreadState::kNative:
      return "Native";
    case ThreadState::kManaged:
      return "Managed";
    case ThreadState::kBlocked:
      return "Blocked";
    case ThreadState::kTerminated:
      return "Terminated";
    case ThreadState::kCarrier:
      return "Carrier";
  }
  return "?";
}

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_BASE_THREAD_STATE_H_
