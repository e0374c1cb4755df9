#include "runtime/observe/safepoint_log.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/absl_string.h"
#include "runtime/base/clock.h"
#include "runtime/base/event_sink.h"
#include "runtime/lock/lock_rank.h"
#include "runtime/lock/ranked_mutex.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"

namespace stillpoint {
namespace {

constexpr size_t kCapacity = 1024;  // lines

// A pipe that poll(2) calls writable takes this much without blocking
// (PIPE_BUF, pipe(7)); a line is shorter.
constexpr size_t kMaxWrite = 4096;

constexpr int kPollMillis = 50;

}  // namespace

std::string FormatSafepointLine(const SafepointRecord& record) {
  std::string line = absl::StrCat("Safepoint \"", record.operation, "\"");
  if (record.operations > 1) {
    absl::StrAppend(&line, " (+", record.operations - 1, ")");
  }
  absl::StrAppend(&line, ", Time since last: ", record.since_last,
                  " ns, Waiting for Threads_lock: ", record.lock_wait,
                  " ns, Reaching safepoint: ", record.reaching,
                  " ns, At safepoint: ", record.at_safepoint,
                  " ns, Leaving safepoint: ", record.leaving,
                  " ns, Total: ", record.total,
                  " ns, Threads: ", record.threads_runnable, " runnable, ",
                  record.threads_total, " total");
  if (record.last_thread[0] != '\0') {
    absl::StrAppend(&line, ", Last to arrive: \"", record.last_thread,
                    "\" after ", record.last_thread_delay, " ns");
  }
  return line;
}

// The lines between the callbacks and the writing thread. The lock is held
// only to move a line in or out, never while writing.
class SafepointLogWriter::Buffer {
 public:
  explicit Buffer(int fd) : fd_(fd), process_(getpid()) {}

  void Push(std::string line) {
    {
      RankedMutexLock lock(lock_);
      if (lines_.size() >= kCapacity) {
        // relaxed (M28): a count.
        dropped_.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      lines_.push_back(std::move(line));
    }
    signal_.fetch_add(1);
    if (sleeps_.load()) FutexWake(signal_, 1);
  }

  // The writing thread.
  void Run() {
    while (true) {
      const uint32_t signal = signal_.load();
      std::vector<std::string> lines;
      {
        RankedMutexLock lock(lock_);
        lines.swap(lines_);
      }
      for (std::string& line : lines) Write(std::move(line));
      if (!lines.empty()) continue;
      if (stop_.load()) break;
      // seq_cst (M5) against Push: either it sees the sleeper, or the kernel
      // sees the changed word.
      sleeps_.store(true);
      FutexWait(signal_, signal, Deadline::Infinite());
      sleeps_.store(false);
    }
    exited_.store(1);
    FutexWake(exited_, 1);
  }

  // Lets the writing thread write what is left until `deadline`, and end.
  void Stop(Deadline deadline) {
    if (getpid() != process_) return;  // the thread is the parent's
    give_up_at_.store(deadline.monotonic_nanos());
    stop_.store(true);
    signal_.fetch_add(1);
    FutexWake(signal_, 1);
    // The writing thread looks at the deadline before every write, and mostly
    // does not write where that could block. But poll(2) calls a terminal
    // writable that takes less than a line, and somebody else may fill a pipe
    // in between. So it may sit in a write: then it is left there. It shares
    // this buffer, and writes no more when it comes back. The time on top is
    // for a thread that has looked just before the deadline.
    constexpr int64_t kGraceNanos = 200'000'000;
    const Deadline end =
        Deadline::AtMonotonicNanos(deadline.monotonic_nanos() + kGraceNanos);
    while (exited_.load() == 0 && !end.passed()) FutexWait(exited_, 0u, end);
  }

  // relaxed (M28): a count.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  bool GaveUp() const {
    return stop_.load() && MonotonicNanos() >= give_up_at_.load();
  }

  void Write(std::string line) {
    const uint64_t dropped = this->dropped();
    if (dropped != reported_) {
      line = absl::StrCat("(", dropped - reported_,
                          " safepoint lines dropped: the log's reader is too "
                          "slow)\n",
                          line);
    }
    if (line.size() >= kMaxWrite) line.resize(kMaxWrite - 1);
    line.push_back('\n');
    size_t done = 0;
    while (done < line.size()) {
      if (GaveUp() || broken_) {
        // relaxed (M28): a count.
        dropped_.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      pollfd ready = {fd_, POLLOUT, 0};
      const int n = poll(&ready, 1, kPollMillis);
      if (n == 0 || (n < 0 && errno == EINTR)) continue;
      const ssize_t written =
          write(fd_, line.data() + done, line.size() - done);
      if (written >= 0) {
        done += static_cast<size_t>(written);
      } else if (errno != EINTR && errno != EAGAIN) {
        broken_ = true;  // closed by the reader: nothing more can be written
      }
    }
    reported_ = dropped;
  }

  const int fd_;
  const pid_t process_;
  RankedMutex lock_{kSafepointLogLockRank};
  std::vector<std::string> lines_ ABSL_GUARDED_BY(lock_);
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint32_t> signal_{0};
  std::atomic<bool> sleeps_{false};
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> give_up_at_{0};
  std::atomic<uint32_t> exited_{0};
  // The writing thread's own.
  uint64_t reported_ = 0;
  bool broken_ = false;
};

absl::StatusOr<std::unique_ptr<SafepointLogWriter>> SafepointLogWriter::Create(
    int fd) {
  auto buffer = std::make_shared<Buffer>(fd);
  auto share = std::make_unique<std::shared_ptr<Buffer>>(buffer);
  OsThreadOptions options;
  options.block_signals =
      true;  // SIGPIPE too: a closed reader is an error code
  absl::Status started = StartOsThread(
      options,
      [](void* argument) -> void* {
        std::unique_ptr<std::shared_ptr<Buffer>> own(
            static_cast<std::shared_ptr<Buffer>*>(argument));
        SetCurrentOsThreadName("safepoint-log");
        (*own)->Run();
        return nullptr;
      },
      share.get());
  if (!started.ok()) return started;
  share.release();
  return std::unique_ptr<SafepointLogWriter>(
      new SafepointLogWriter(std::move(buffer)));
}

SafepointLogWriter::SafepointLogWriter(std::shared_ptr<Buffer> buffer)
    : buffer_(std::move(buffer)) {}

SafepointLogWriter::~SafepointLogWriter() {
  constexpr int64_t kFlushNanos = 1'000'000'000;
  buffer_->Stop(Deadline::AtMonotonicNanos(MonotonicNanos() + kFlushNanos));
}

void SafepointLogWriter::OnSafepoint(const SafepointRecord& record) {
  buffer_->Push(FormatSafepointLine(record));
}

void SafepointLogWriter::OnMessage(Severity severity,
                                   std::string_view message) {
  buffer_->Push(absl::StrCat(severity == Severity::kWarning ? "Warning: " : "",
                             ToAbsl(message)));
}

uint64_t SafepointLogWriter::dropped() const { return buffer_->dropped(); }

}  // namespace stillpoint
