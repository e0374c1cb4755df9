// What a thread waits for, for dumps and for the search for deadlocks.

#ifndef STILLPOINT_RUNTIME_THREAD_WAITING_FOR_H_
#define STILLPOINT_RUNTIME_THREAD_WAITING_FOR_H_

#include <atomic>
#include <cstdint>
#include <string_view>

namespace stillpoint {

enum class WaitKind : uint8_t {
  kNothing,    // it does not wait, or waits for a stop to be over
  kPermit,     // Park
  kTime,       // Sleep
  kThread,     // Join; the object is the Thread
  kOperation,  // a VM operation, or several
  kHandshake,  // handshakes
  kResume,     // it is suspended
  kBlockingCall,
  kMutex,  // from here on the object is what it waits at
  kCondVar,
  kSemaphore,
  kWaitGroup,
  kChannel,
  kSelect,  // several channels; no object
};

constexpr std::string_view WaitKindName(WaitKind kind) {
  switch (kind) {
    case WaitKind::kNothing:
      return "nothing";
    case WaitKind::kPermit:
      return "permit";
    case WaitKind::kTime:
      return "time";
    case WaitKind::kThread:
      return "thread";
    case WaitKind::kOperation:
      return "operation";
    case WaitKind::kHandshake:
      return "handshake";
    case WaitKind::kResume:
      return "resume";
    case WaitKind::kBlockingCall:
      return "blocking call";
    case WaitKind::kMutex:
      return "mutex";
    case WaitKind::kCondVar:
      return "condition variable";
    case WaitKind::kSemaphore:
      return "semaphore";
    case WaitKind::kWaitGroup:
      return "wait group";
    case WaitKind::kChannel:
      return "channel";
    case WaitKind::kSelect:
      return "select";
  }
  return "?";
}

// A plain value. The object is for comparing addresses; it may be gone, unless
// the thread is known to wait still: a thread that came from Managed goes on
// waiting as long as the world is stopped, one that came from Native does not
// care. (sync/mutex.h has a way to ask for an owner that holds in all cases.)
class WaitingFor {
 public:
  constexpr WaitingFor() = default;
  explicit constexpr WaitingFor(WaitKind kind) : kind_(kind) {}
  WaitingFor(WaitKind kind, const void* object)
      : kind_(kind), object_(object) {}

  constexpr WaitKind kind() const { return kind_; }
  constexpr const void* object() const { return object_; }

  friend bool operator==(const WaitingFor&, const WaitingFor&) = default;

 private:
  WaitKind kind_ = WaitKind::kNothing;
  const void* object_ = nullptr;
};

// The present one of a thread, in its record: one word, so that whoever looks
// sees a kind and its own object.
class WaitingForWord {
 public:
  // Owner only. relaxed (M70): the store of Blocked that follows publishes it;
  // otherwise it is a glance.
  void Set(WaitingFor what) {
    word_.store(reinterpret_cast<uintptr_t>(what.object()) << kKindBits |
                    static_cast<uint64_t>(what.kind()),
                std::memory_order_relaxed);
  }

  // Any thread that may use the record. relaxed (M70): as above.
  WaitingFor Get() const {
    const uint64_t word = word_.load(std::memory_order_relaxed);
    return WaitingFor(
        static_cast<WaitKind>(word & ((uint64_t{1} << kKindBits) - 1)),
        reinterpret_cast<const void*>(word >> kKindBits));
  }

 private:
  // User addresses have at most 56 bits on x86-64 and aarch64.
  static constexpr int kKindBits = 8;
  static_assert(sizeof(uintptr_t) == sizeof(uint64_t));

  std::atomic<uint64_t> word_{0};
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_THREAD_WAITING_FOR_H_
