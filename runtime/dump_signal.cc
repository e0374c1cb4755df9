#include "runtime/dump_signal.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/observe/thread_dump.h"
#include "runtime/os/futex.h"
#include "runtime/os/os_thread.h"
#include "runtime/os/owned_signal.h"
#include "runtime/runtime.h"

namespace stillpoint {
namespace {

// How often each signal has come, and a futex. Static: a handler may run when
// nobody listens any more.
constinit std::atomic<uint32_t> g_came[NSIG];

bool Handle(int signal, const siginfo_t& /*info*/, void* /*context*/) {
  g_came[signal].fetch_add(1);
  FutexWake(g_came[signal], INT32_MAX);
  return false;
}

void WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR) return;
    if (n > 0) done += static_cast<size_t>(n);
  }
}

}  // namespace

struct DumpOnSignal::Shared {
  Runtime& runtime;
  const int signal;
  const int fd;
  const ThreadDumpOptions options;
  uint32_t seen = 0;  // the thread's own, once it runs
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> ended{0};

  void Run() {
    while (true) {
      while (g_came[signal].load() == seen && !stop.load()) {
        FutexWait(g_came[signal], seen, Deadline::Infinite());
      }
      if (stop.load()) break;
      seen = g_came[signal].load();
      const absl::StatusOr<std::string> dump = runtime.DumpThreads(options);
      WriteAll(fd, dump.ok() ? *dump
                             : absl::StrCat("No thread dump: ",
                                            dump.status().message(), "\n"));
    }
    ended.store(1);
    FutexWake(ended, 1);
  }
};

absl::StatusOr<std::unique_ptr<DumpOnSignal>> DumpOnSignal::Create(
    Runtime& runtime, int signal, int fd, ThreadDumpOptions options) {
  if (absl::Status owned = OwnSignal(signal, &Handle); !owned.ok()) {
    return owned;
  }
  std::shared_ptr<Shared> shared(
      new Shared{runtime, signal, fd, options, g_came[signal].load()});
  auto share = std::make_unique<std::shared_ptr<Shared>>(shared);
  OsThreadOptions os_options;
  os_options.block_signals = true;
  absl::Status started = StartOsThread(
      os_options,
      [](void* argument) -> void* {
        const std::unique_ptr<std::shared_ptr<Shared>> own(
            static_cast<std::shared_ptr<Shared>*>(argument));
        SetCurrentOsThreadName("thread-dump");
        (*own)->Run();
        return nullptr;
      },
      share.get());
  if (!started.ok()) return started;
  share.release();
  return std::unique_ptr<DumpOnSignal>(new DumpOnSignal(std::move(shared)));
}

DumpOnSignal::DumpOnSignal(std::shared_ptr<Shared> shared)
    : shared_(std::move(shared)) {}

DumpOnSignal::~DumpOnSignal() {
  shared_->stop.store(true);
  // Changes the word, so that a thread that is about to sleep does not.
  Handle(shared_->signal, siginfo_t(), nullptr);
  while (shared_->ended.load() == 0) {
    FutexWait(shared_->ended, 0u, Deadline::Infinite());
  }
}

}  // namespace stillpoint
