#include "examples/storm/storm.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/event_sink.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"

namespace stillpoint::storm {
namespace {

// Keeps what the stops say. Called on the VM thread alone; read when that has
// ended.
class Recorder : public EventSink {
 public:
  Recorder(StormResult& result, EventSink* log) : result_(result), log_(log) {}

  void OnSafepoint(const SafepointRecord& record) override {
    result_.threads_lock_wait.Add(record.lock_wait);
    result_.time_to_safepoint.Add(record.time_to_safepoint());
    if (log_ != nullptr) log_->OnSafepoint(record);
  }
  void OnMessage(Severity severity, std::string_view message) override {
    if (log_ != nullptr) log_->OnMessage(severity, message);
  }

 private:
  StormResult& result_;
  EventSink* const log_;
};

class Storm {
 public:
  Storm(const StormConfig& config, Runtime& runtime)
      : config_(config), runtime_(runtime) {}

  absl::Status Begin() {
    for (int i = 0; i < config_.busy; ++i) {
      absl::Status started =
          Launch(absl::StrCat("busy-", i), [this] { BeBusy(); });
      if (!started.ok()) return started;
    }
    for (int i = 0; i < config_.starters; ++i) {
      absl::Status started =
          Launch(absl::StrCat("starter-", i), [this] { StartThreads(); });
      if (!started.ok()) return started;
    }
    return absl::OkStatus();
  }

  void End() {
    ending_.store(true, std::memory_order_relaxed);
    for (const ThreadHandle& thread : threads_) (void)thread.Join();
  }

  // One stop, which looks whether anybody runs in it.
  absl::Status Stop() {
    return runtime_.AtSafepoint("storm", [this](World&) { canary_.Check(); });
  }

  uint64_t starts() const { return starts_.load(std::memory_order_relaxed); }
  uint64_t violations() const { return canary_.violations(); }

  void ReportFailures(StormResult& result) {
    std::lock_guard<std::mutex> lock(failure_mutex_);
    result.failed_starts = failed_starts_;
    result.first_failure = first_failure_;
  }

 private:
  absl::Status Launch(std::string name, absl::AnyInvocable<void()> body) {
    absl::StatusOr<ThreadHandle> started =
        runtime_.Start({std::move(name), 0}, std::move(body));
    if (!started.ok()) return started.status();
    threads_.push_back(*std::move(started));
    return absl::OkStatus();
  }

  bool ending() const { return ending_.load(std::memory_order_relaxed); }

  // A piece of managed work that a stop must not overlap with.
  void WorkABit() {
    StopCanary::Work work(canary_);
    for (int i = 0; i < 100; ++i) asm volatile("" ::: "memory");
  }

  void BeBusy() {
    Thread& self = Thread::CurrentOrDie();
    ManagedScope managed(self);
    while (!ending()) {
      WorkABit();
      Poll(self);
    }
  }

  // The body of a short-lived thread.
  void WorkAndEnd() {
    Thread& self = Thread::CurrentOrDie();
    ManagedScope managed(self);
    const auto until = std::chrono::steady_clock::now() + config_.work;
    do {
      WorkABit();
      Poll(self);
    } while (std::chrono::steady_clock::now() < until);
  }

  // A starter: Managed, like an interpreter whose program starts threads.
  void StartThreads() {
    ManagedScope managed;
    std::deque<ThreadHandle> unfinished;
    while (!ending()) {
      absl::StatusOr<ThreadHandle> started =
          runtime_.Start([this] { WorkAndEnd(); });
      if (started.ok()) {
        starts_.fetch_add(1, std::memory_order_relaxed);
        unfinished.push_back(*std::move(started));
      } else {
        NoteFailure(started.status());
      }
      while (!unfinished.empty() && !unfinished.front().alive()) {
        unfinished.pop_front();
      }
      if (unfinished.size() >= static_cast<size_t>(config_.alive)) {
        (void)unfinished.front().Join();
        unfinished.pop_front();
      }
      Poll();
    }
    for (const ThreadHandle& thread : unfinished) (void)thread.Join();
  }

  void NoteFailure(const absl::Status& status) {
    // A limit of the machine was reached; others may end meanwhile.
    NativeScope native;
    {
      std::lock_guard<std::mutex> lock(failure_mutex_);
      if (++failed_starts_ == 1) {
        first_failure_ = std::string(status.message());
      }
    }
    std::this_thread::yield();
  }

  const StormConfig& config_;
  Runtime& runtime_;
  StopCanary canary_;
  // relaxed: a flag and a counter, nothing is reached through them.
  std::atomic<bool> ending_{false};
  std::atomic<uint64_t> starts_{0};
  std::mutex failure_mutex_;
  uint64_t failed_starts_ = 0;
  std::string first_failure_;
  std::vector<ThreadHandle> threads_;
};

}  // namespace

absl::StatusOr<StormResult> RunStorm(
    const StormConfig& config, StartProtocol protocol,
    const std::atomic<bool>& stop,
    const std::function<void(double, uint64_t)>& progress) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kProgressInterval(250);

  StormResult result;
  result.protocol = std::string(StartProtocolName(protocol));
  result.starters = config.starters;
  Recorder recorder(result, config.log);

  Options options;
  options.name = "storm";
  options.start_protocol = protocol;
  options.stack_size = config.stack_size;
  options.event_sink = &recorder;
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create(options);
  if (!runtime.ok()) return runtime.status();

  Storm storm(config, **runtime);
  absl::Status status = storm.Begin();
  const Clock::time_point begin = Clock::now();
  const auto end =
      begin + std::chrono::duration_cast<Clock::duration>(config.length);
  Clock::time_point next_stop = begin;
  Clock::time_point next_progress = begin;
  const auto seconds = [&] {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  while (status.ok() && !stop.load() && Clock::now() < end) {
    // Requests that fell due while one was served are left out: a request right
    // behind a stop would find the lock as the VM thread has just left it.
    const Clock::duration late = Clock::now() - next_stop;
    next_stop += config.interval * (1 + late / config.interval);
    std::this_thread::sleep_until(next_stop);
    status = storm.Stop();
    if (Clock::now() >= next_progress) {
      progress(seconds(), storm.starts());
      next_progress = Clock::now() + kProgressInterval;
    }
  }
  result.seconds = seconds();
  result.starts = storm.starts();
  storm.End();
  storm.ReportFailures(result);
  result.violations = storm.violations();
  absl::Status ended =
      (*runtime)->Shutdown(Deadline::After(std::chrono::seconds(60)));
  if (!status.ok()) return status;
  if (!ended.ok()) return ended;
  return result;
}

}  // namespace stillpoint::storm
