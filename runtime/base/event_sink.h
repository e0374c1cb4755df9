// What the runtime reports, and to whom. Floors 3 to 5 report through this
// interface and know nothing of who listens.

#ifndef STILLPOINT_RUNTIME_BASE_EVENT_SINK_H_
#define STILLPOINT_RUNTIME_BASE_EVENT_SINK_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stillpoint {

// One stop of the world. All times in nanoseconds of CLOCK_MONOTONIC. The four
// phases lock_wait, reaching, at_safepoint and leaving follow each other
// without a gap and sum to `total` exactly. A plain value: copy it freely.
struct SafepointRecord {
  static constexpr size_t kNameCapacity = 64;

  // What ran: the operation's name, and how many more shared the stop.
  char operation[kNameCapacity] = {};
  uint32_t operations = 0;
  uint32_t nested_operations = 0;  // requested from inside those

  uint64_t sequence = 0;     // 1 for the runtime's first stop
  int64_t begin = 0;         // when the VM thread began this stop
  int64_t since_last = 0;    // from the end of the stop before; 0 for the first
  int64_t queue_wait = 0;    // first operation: from its request until `begin`
  int64_t lock_wait = 0;     // waiting for Threads_lock
  int64_t arming = 0;        // part of `reaching`: stop word, order, the scan
  int64_t reaching = 0;      // from holding the lock until the last is stopped
  int64_t at_safepoint = 0;  // running operations
  int64_t leaving = 0;       // until the VM thread is free again
  int64_t total = 0;

  uint32_t threads_total = 0;     // members at the scan
  uint32_t threads_runnable = 0;  // of those, in Managed at the scan

  // The last runnable thread to become safe, and how long after the stop word
  // was written; empty and 0 when none was runnable.
  char last_thread[kNameCapacity] = {};
  int64_t last_thread_delay = 0;

  // Time to safepoint as somebody who waits for it counts: lock wait included.
  int64_t time_to_safepoint() const { return lock_wait + reaching; }
};

enum class Severity { kInfo, kWarning };

// Implemented by the embedder; not owned by the runtime. It must outlive the
// Runtime, and for ever if Shutdown() failed. Callbacks may come from several
// threads at once. They must not call the runtime and must not throw.
class EventSink {
 public:
  virtual ~EventSink() = default;

  // On the VM thread, or on the thread that stopped the world in its place
  // (Options::requester_may_run), after each stop, with the world running. Time
  // spent here delays only the next stop. A sink that writes somewhere that can
  // block belongs behind observe/SafepointLogWriter.
  virtual void OnSafepoint(const SafepointRecord& /*record*/) {}

  // Something worth a log line: a choice made at start, a fallback taken.
  virtual void OnMessage(Severity /*severity*/, std::string_view /*message*/) {}
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_BASE_EVENT_SINK_H_
