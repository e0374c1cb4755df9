// How far CurrentThreadCpuNanos() is from the kernel's clock, on an idle
// machine and on crowded ones, with threads that compute and threads that also
// block. Each sample is a reading between two of the kernel's: what lies
// outside of the interval, or away from the middle of a short one, is error.

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/cpu/sample.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/os/cpu_clock.h"
#include "runtime/os/os_thread.h"
#include "runtime/stillpoint.h"

namespace stillpoint {
namespace {

// The kernel's two readings take about 3 us; an interval that is longer was
// interrupted, and has no middle to speak of.
constexpr int64_t kShortInterval = 6'000;

struct Sampled {
  std::vector<double> errors;  // absolute
  int64_t worst_ahead = 0;     // of the clock before the kernel's
  int64_t worst_behind = 0;
  uint64_t backwards = 0;
  uint64_t readings = 0;
  FastCpuClockStats stats;
};

void Merge(const Sampled& from, Sampled& to) {
  to.errors.insert(to.errors.end(), from.errors.begin(), from.errors.end());
  to.worst_ahead = std::max(to.worst_ahead, from.worst_ahead);
  to.worst_behind = std::max(to.worst_behind, from.worst_behind);
  to.backwards += from.backwards;
  to.readings += from.readings;
  to.stats.bases += from.stats.bases;
  to.stats.overruns += from.stats.overruns;
  to.stats.worst_overrun =
      std::max(to.stats.worst_overrun, from.stats.worst_overrun);
  to.stats.other_users += from.stats.other_users;
}

void Sleep(int64_t nanos) {
  const timespec time = {0, nanos};
  nanosleep(&time, nullptr);
}

// Reads until `until`, between `pause` and three times as many readings apart;
// goes to sleep now and then if it is to block.
Sampled Sample(Deadline until, bool blocks) {
  Sampled sampled;
  ManagedScope managed;
  uint64_t random = 88172645463325252u;
  int64_t last = 0;
  // Long before the vector grows, so that it does not in between.
  sampled.errors.reserve(2'000'000);
  while (!until.passed()) {
    Poll();
    // Some work, in which the clock is read as well: a slice of 0 to 100 us.
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    for (uint64_t i = 0; i < random % 5000; ++i) {
      const int64_t now = CurrentThreadCpuNanos();
      sampled.backwards += now < last;
      last = now;
      ++sampled.readings;
    }
    if (blocks && random % 8 == 0) {
      NativeScope native;
      Sleep(static_cast<int64_t>(random >> 32) % 300'000);
    }
    const int64_t before = CurrentThreadKernelCpuNanos();
    const int64_t now = CurrentThreadCpuNanos();
    const int64_t after = CurrentThreadKernelCpuNanos();
    sampled.backwards += now < last;
    last = now;
    ++sampled.readings;
    int64_t error = 0;
    if (after - before <= kShortInterval) {
      error = now - (before + after) / 2;
    } else if (now < before) {
      error = now - before;
    } else if (now > after) {
      error = now - after;
    }
    sampled.worst_ahead = std::max(sampled.worst_ahead, error);
    sampled.worst_behind = std::max(sampled.worst_behind, -error);
    if (sampled.errors.size() < sampled.errors.capacity()) {
      sampled.errors.push_back(static_cast<double>(std::abs(error)));
    }
  }
  sampled.stats = CurrentThreadCpuClockStats();
  return sampled;
}

// `readers` threads that sample and `busy` ones that only take the processors.
Sampled RunCrowd(Runtime& runtime, int readers, int busy, bool blocks,
                 int64_t nanos) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> crowd;
  for (int i = 0; i < busy; ++i) {
    crowd.emplace_back([&stop] {
      while (!stop.load()) {
      }
    });
  }
  const Deadline until = Deadline::AtMonotonicNanos(MonotonicNanos() + nanos);
  std::vector<Sampled> results(static_cast<size_t>(readers));
  std::vector<ThreadHandle> threads;
  for (Sampled& result : results) {
    absl::StatusOr<ThreadHandle> thread = runtime.Start(
        [&result, until, blocks] { result = Sample(until, blocks); });
    STILLPOINT_CHECK(thread.ok(), "no thread");
    threads.push_back(*thread);
  }
  Sampled all;
  for (const ThreadHandle& thread : threads) thread.Join().IgnoreError();
  for (const Sampled& result : results) Merge(result, all);
  stop.store(true);
  for (std::thread& thread : crowd) thread.join();
  return all;
}

int Run(double seconds) {
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create();
  STILLPOINT_CHECK(runtime.ok(), "no runtime");
  const int processors = AllowedCpuCount();
  std::printf("%s\n%d processors, %g s a row; errors against clock_gettime\n\n",
              std::string((*runtime)->cpu_clock_description()).c_str(),
              processors, seconds);
  struct Row {
    const char* name;
    int readers;
    int busy;
  };
  const Row rows[] = {
      {"idle machine, 1 reader", 1, 0},
      {"2 readers a processor", 2 * processors, 0},
      {"1 reader, 4 busy a processor", 1, 4 * processors},
  };
  std::printf("%-30s %-9s %9s %9s %8s %8s %10s %10s %9s %9s %9s\n", "", "",
              "mean us", "p99 us", "ahead us", "behind us", "readings",
              "bases/s", "overruns", "worst us", "backwards");
  bool kept = true;
  for (const Row& row : rows) {
    for (const bool blocks : {false, true}) {
      Sampled sampled = RunCrowd(**runtime, row.readers, row.busy, blocks,
                                 static_cast<int64_t>(seconds * 1e9));
      const double mean = bench::Summarize(sampled.errors).mean / 1000;
      std::printf(
          "%-30s %-9s %9.3f %9.3f %8.2f %8.2f %10llu %10.0f %9llu %9.2f "
          "%9llu\n",
          row.name, blocks ? "blocking" : "computing", mean,
          bench::Quantile(sampled.errors, 0.99) / 1000,
          static_cast<double>(sampled.worst_ahead) / 1000,
          static_cast<double>(sampled.worst_behind) / 1000,
          static_cast<unsigned long long>(sampled.readings),
          static_cast<double>(sampled.stats.bases) / seconds,
          static_cast<unsigned long long>(sampled.stats.overruns),
          static_cast<double>(sampled.stats.worst_overrun) / 1000,
          static_cast<unsigned long long>(sampled.backwards));
      const int64_t worst = std::max(sampled.worst_ahead, sampled.worst_behind);
      kept &= sampled.backwards == 0 && mean <= 0.3 && worst <= 100'000;
    }
  }
  std::printf(
      "\nmean at most 0.3 us, worst at most 100 us, never backwards: "
      "%s\n",
      kept ? "yes" : "NO");
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace stillpoint

int main(int argc, char** argv) {
  if (stillpoint::kDebugChecks) {
    std::printf("debug checks are on: not figures to quote\n");
  }
  const double seconds = argc > 1 ? std::atof(argv[1]) : 3;
  if (seconds <= 0) {
    std::fprintf(stderr, "usage: accuracy [seconds a row]\n");
    return 2;
  }
  return stillpoint::Run(seconds);
}
