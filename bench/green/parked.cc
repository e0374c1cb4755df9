// A million green threads at once: started, parked, listed at a safepoint,
// woken, joined; with the time of each phase and what each thread takes.
//
//   parked [THREADS]

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/stillpoint.h"

namespace stillpoint {
namespace {

// VmRSS and VmSwap are not told apart by what a thread takes; there is no swap
// in a measurement worth its name.
int64_t ResidentBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  int64_t size = 0;
  int64_t resident = 0;
  if (std::fscanf(file, "%ld %ld", &size, &resident) != 2) resident = 0;
  std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t MaxMapCount() {
  std::FILE* file = std::fopen("/proc/sys/vm/max_map_count", "r");
  if (file == nullptr) return 0;
  int64_t count = 0;
  if (std::fscanf(file, "%ld", &count) != 1) count = 0;
  std::fclose(file);
  return count;
}

// Mappings of this process.
int64_t MapCount() {
  std::FILE* file = std::fopen("/proc/self/maps", "r");
  if (file == nullptr) return 0;
  int64_t lines = 0;
  for (int c = std::getc(file); c != EOF; c = std::getc(file)) {
    if (c == '\n') ++lines;
  }
  std::fclose(file);
  return lines;
}

class Phase {
 public:
  explicit Phase(size_t threads) : threads_(threads) {}
  void Begin() { begin_ = MonotonicNanos(); }
  void Done(const char* name) {
    const int64_t now = MonotonicNanos();
    const double nanos = static_cast<double>(now - begin_);
    std::printf("%-28s %9.1f ms %8.0f ns a thread\n", name, nanos / 1e6,
                nanos / static_cast<double>(threads_));
    std::fflush(stdout);
    Begin();
  }

 private:
  const size_t threads_;
  int64_t begin_ = MonotonicNanos();
};

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "parked: %s\n", status.ToString().c_str());
  return 1;
}

int Run(size_t count) {
  absl::StatusOr<std::unique_ptr<Runtime>> created = Runtime::Create();
  if (!created.ok()) return Fail(created.status());
  Runtime& runtime = **created;
  const AttachScope attached(runtime, "main");
  if (!attached.status().ok()) return Fail(attached.status());

  std::vector<ThreadHandle> threads;
  threads.reserve(count);
  // Touched now, so that they do not count as the threads' own.
  for (size_t i = 0; i < count; ++i) threads.emplace_back();
  threads.clear();
  std::atomic<size_t> begun{0};
  std::atomic<size_t> woken{0};
  const int64_t before = ResidentBytes();
  Phase phase(count);
  for (size_t i = 0; i < count; ++i) {
    absl::StatusOr<ThreadHandle> started =
        runtime.Start({.kind = ThreadKind::kGreen}, [&begun, &woken] {
          ManagedScope managed;
          begun.fetch_add(1);
          if (Park().ok()) woken.fetch_add(1);
        });
    if (!started.ok()) return Fail(started.status());
    threads.push_back(*std::move(started));
  }
  phase.Done("start");
  while (begun.load() < count) usleep(1000);
  phase.Done("until all have begun");
  const int64_t after = ResidentBytes();
  const int64_t maps = MapCount();

  size_t listed = 0;
  size_t blocked = 0;
  phase.Begin();
  const absl::Status stop = runtime.AtSafepoint("list", [&](World& world) {
    world.ForEachThread([&](const StoppedThread& thread) {
      if (thread.kind() != ThreadKind::kGreen) return;
      const StackBounds stack = thread.stack();
      if (thread.scan_begin() < stack.low || thread.scan_begin() > stack.high) {
        return;
      }
      ++listed;
      if (thread.state() == ThreadState::kBlocked) ++blocked;
    });
  });
  if (!stop.ok()) return Fail(stop);
  phase.Done("list at a safepoint");
  for (const ThreadHandle& thread : threads) (void)thread.Unpark();
  phase.Done("unpark");
  for (const ThreadHandle& thread : threads) {
    const absl::Status joined = thread.Join();
    if (!joined.ok()) return Fail(joined);
  }
  phase.Done("join");

  std::printf(
      "%zu threads, %zu listed with their stacks, %zu of them blocked, %zu "
      "woken\n",
      count, listed, blocked, woken.load());
  std::printf(
      "%.2f KiB resident a thread; %ld mappings of at most %ld\n",
      static_cast<double>(after - before) / 1024 / static_cast<double>(count),
      maps, MaxMapCount());
  return listed == count && woken.load() == count ? 0 : 1;
}

}  // namespace
}  // namespace stillpoint

int main(int argc, char** argv) {
  const long count = argc > 1 ? std::atol(argv[1]) : 1'000'000;
  if (count <= 0 || argc > 2) {
    std::fprintf(stderr, "usage: parked [THREADS]\n");
    return 2;
  }
  return stillpoint::Run(static_cast<size_t>(count));
}
