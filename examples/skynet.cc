// A tree of green threads: each starts ten more, down to a million leaves, and
// sums up what they send it over an unbuffered channel, at which they wait for
// it. The result is 0 + 1 + ... + 999,999.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "runtime/stillpoint.h"
#include "runtime/sync/channel.h"

ABSL_FLAG(int64_t, leaves, 1'000'000, "leaves of the tree: a power of ten");
ABSL_FLAG(size_t, carriers, 0,
          "OS threads that run the green ones; 0: one for each processor");

namespace stillpoint {
namespace {

constexpr int64_t kChildren = 10;

// Memory that the process has in use, in MiB; 0 if /proc does not say.
double ResidentMiB() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    double kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib / 1024;
  }
  return 0;
}

class Skynet {
 public:
  Skynet(Runtime& runtime, int64_t leaves)
      : runtime_(runtime), leaves_(leaves) {}

  // Threads that were started.
  int64_t started() const { return started_.load(); }
  // The sum, or -1 until it is there.
  int64_t result() const { return result_.load(); }
  // Why it failed; empty if it did not.
  std::string error() const { return failed_.load() ? error_ : std::string(); }

  void Begin() {
    StartNode(0, leaves_, [this](int64_t sum) { result_.store(sum); });
  }

 private:
  // Starts the thread of the subtree with `size` leaves from `first` on, which
  // tells its sum by `tell`.
  template <typename Tell>
  void StartNode(int64_t first, int64_t size, Tell tell) {
    ThreadOptions options;
    options.kind = ThreadKind::kGreen;
    absl::StatusOr<ThreadHandle> node = runtime_.Start(
        std::move(options), [this, first, size, tell = std::move(tell)] {
          const ManagedScope managed;
          tell(size == 1 ? first : SumOfChildren(first, size));
        });
    if (node.ok()) {
      started_.fetch_add(1);
      return;
    }
    if (!failed_.exchange(true)) {
      error_ = std::string(node.status().message());
      result_.store(0);
    }
  }

  int64_t SumOfChildren(int64_t first, int64_t size) {
    Channel<int64_t> sums;
    const int64_t step = size / kChildren;
    for (int64_t i = 0; i < kChildren; ++i) {
      StartNode(first + i * step, step, [&sums](int64_t sum) {
        // An error means that the program is ending.
        (void)sums.Send(sum);
      });
    }
    int64_t sum = 0;
    for (int64_t i = 0; i < kChildren; ++i) {
      const absl::StatusOr<int64_t> child = sums.Receive();
      if (child.ok()) sum += *child;
    }
    return sum;
  }

  Runtime& runtime_;
  const int64_t leaves_;
  std::atomic<int64_t> started_{0};
  std::atomic<int64_t> result_{-1};
  std::atomic<bool> failed_{false};
  std::string error_;
};

int Main() {
  const int64_t leaves = absl::GetFlag(FLAGS_leaves);
  int64_t power = 1;
  int64_t threads = 1;
  while (power < leaves && power < 10'000'000) {
    power *= kChildren;
    threads += power;
  }
  if (power != leaves) {
    std::fprintf(stderr, "--leaves must be a power of ten up to 10000000\n");
    return 2;
  }
  Options options;
  options.carriers = absl::GetFlag(FLAGS_carriers);
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create(options);
  if (!runtime.ok()) {
    std::fprintf(stderr, "%s\n",
                 std::string(runtime.status().message()).c_str());
    return 1;
  }
  const double before = ResidentMiB();
  double most = before;
  const int64_t begin = MonotonicNanos();
  Skynet skynet(**runtime, leaves);
  skynet.Begin();
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  while (skynet.result() < 0) {
    if (absl::Status slept = Sleep(std::chrono::milliseconds(100));
        !slept.ok()) {
      break;
    }
    most = std::max(most, ResidentMiB());
    if (!terminal) continue;
    absl::PrintF("\r%d of %d threads started, %.0f MiB ", skynet.started(),
                 threads, most);
    std::fflush(stdout);
  }
  const double seconds = static_cast<double>(MonotonicNanos() - begin) / 1e9;
  if (terminal) absl::PrintF("\r\x1b[K");
  if (!skynet.error().empty()) {
    std::fprintf(stderr, "%s\n", skynet.error().c_str());
    return 1;
  }
  absl::PrintF(
      "%d threads, sum %d, %.2f s, %.2f us a thread, %.0f MiB more at most\n",
      skynet.started(), skynet.result(), seconds,
      seconds * 1e6 / static_cast<double>(threads), most - before);
  return skynet.result() == leaves * (leaves - 1) / 2 ? 0 : 1;
}

}  // namespace
}  // namespace stillpoint

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "A tree of a million green threads that sum up their numbers.");
  absl::ParseCommandLine(argc, argv);
  return stillpoint::Main();
}
