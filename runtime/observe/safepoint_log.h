// The safepoint log: one line per stop.

#ifndef STILLPOINT_RUNTIME_OBSERVE_SAFEPOINT_LOG_H_
#define STILLPOINT_RUNTIME_OBSERVE_SAFEPOINT_LOG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/base/event_sink.h"

namespace stillpoint {

// The line for one stop, without a line end:
//   Safepoint "…", Time since last: … ns, Waiting for Threads_lock: … ns,
//   Reaching safepoint: … ns, At safepoint: … ns, Leaving safepoint: … ns,
//   Total: … ns, Threads: … runnable, … total, Last to arrive: "…" after … ns
// The four phases sum to Total. Several operations: `Safepoint "first" (+2)`.
std::string FormatSafepointLine(const SafepointRecord& record);

// An event sink that writes those lines to a file descriptor from a thread of
// its own, so that a full pipe or a slow disk never delays a stop: what finds
// the buffer (1,024 records) full is dropped and counted, and the next line
// that gets through says how many are missing. While nothing is logged its
// thread sleeps.
class SafepointLogWriter : public EventSink {
 public:
  // `fd` is borrowed and must stay open until this is destroyed. Error:
  // ResourceExhausted if the thread cannot be created.
  static absl::StatusOr<std::unique_ptr<SafepointLogWriter>> Create(int fd);

  // Writes what is buffered, for at most a second (a reader that does not read
  // costs that second), and ends the thread.
  ~SafepointLogWriter() override;

  // These two wait for a lock that is held briefly; not from Managed.
  void OnSafepoint(const SafepointRecord& record) override;
  void OnMessage(Severity severity, std::string_view message) override;

  // Lines that found the buffer full so far.
  uint64_t dropped() const;

 private:
  class Buffer;
  explicit SafepointLogWriter(std::shared_ptr<Buffer> buffer);

  // Shared with the writing thread.
  std::shared_ptr<Buffer> buffer_;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_OBSERVE_SAFEPOINT_LOG_H_
