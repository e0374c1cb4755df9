// An event sink that keeps what it is told.

#ifndef STILLPOINT_TESTS_SUPPORT_RECORDING_SINK_H_
#define STILLPOINT_TESTS_SUPPORT_RECORDING_SINK_H_

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/event_sink.h"
#include "tests/support/await.h"

namespace stillpoint::testing {

class RecordingSink : public EventSink {
 public:
  void OnSafepoint(const SafepointRecord& record) override {
    std::lock_guard<std::mutex> lock(mutex_);
    records_.push_back(record);
  }
  void OnMessage(Severity severity, std::string_view message) override {
    std::lock_guard<std::mutex> lock(mutex_);
    messages_.push_back((severity == Severity::kWarning ? "W " : "I ") +
                        std::string(message));
  }

  std::vector<SafepointRecord> records() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return records_;
  }
  std::vector<std::string> messages() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return messages_;
  }

  // A requester comes back before the sink is told of its stop.
  std::vector<SafepointRecord> AwaitRecords(size_t count) const {
    Await([&] { return records().size() >= count; });
    return records();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<SafepointRecord> records_;
  std::vector<std::string> messages_;
};

}  // namespace stillpoint::testing

#endif  // STILLPOINT_TESTS_SUPPORT_RECORDING_SINK_H_
