// What each way of asking for CPU time costs: the table of docs/cpu_time.md.
//
// The rows take turns, a few thousand calls each, so that what else the machine
// does falls on all alike. Means are of whole batches; percentiles are of
// single calls, each between two readings of the time stamp counter, less what
// two readings with nothing in between take.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/cpu/sample.h"
#include "runtime/base/check.h"
#include "runtime/os/cpu_clock.h"
#include "runtime/os/os_thread.h"
#include "runtime/os/tsc.h"
#include "runtime/stillpoint.h"

namespace stillpoint {
namespace {

constexpr int kRounds = 50;
constexpr int kBatch = 2000;    // calls per round that are timed together
constexpr int kSingles = 2000;  // and that are timed one by one

volatile int64_t sink;

int64_t ReadOrDie(clockid_t clock) {
  const std::optional<int64_t> nanos = ReadCpuClock(clock);
  STILLPOINT_CHECK(nanos.has_value(), "a CPU clock cannot be read");
  return *nanos;
}

// The user time of a thread as /proc has it, in clock ticks: fields 14 of
// proc(5)'s stat, behind the name in parentheses.
int64_t UserTicksFromProc(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  STILLPOINT_CHECK(file >= 0, "cannot open a file of /proc");
  char text[1024];
  const ssize_t size = read(file, text, sizeof(text) - 1);
  close(file);
  STILLPOINT_CHECK(size > 0, "cannot read a file of /proc");
  text[size] = '\0';
  const char* at = std::strrchr(text, ')');
  STILLPOINT_CHECK(at != nullptr, "a file of /proc has no name in it");
  ++at;
  for (int field = 3; field < 14; ++field) at = std::strchr(at + 1, ' ');
  return std::strtoll(at, nullptr, 10);
}

struct Row {
  std::string name;
  void (*measure)(Row&, uint64_t empty, double nanos_per_tick);
  std::function<int64_t()> slow;  // for rows whose call costs far more than one
                                  // through a pointer
  std::vector<double> means = {};  // one per round
  std::vector<double> singles = {};
};

template <typename Call>
void MeasureCall(Row& row, uint64_t empty, double nanos_per_tick, Call call) {
  const uint64_t begin = bench::Ticks();
  for (int i = 0; i < kBatch; ++i) sink = call();
  const uint64_t ticks = bench::Ticks() - begin;
  row.means.push_back(static_cast<double>(ticks) * nanos_per_tick / kBatch);
  for (int i = 0; i < kSingles; ++i) {
    const uint64_t from = bench::Ticks();
    sink = call();
    const uint64_t taken = bench::Ticks() - from;
    row.singles.push_back(static_cast<double>(taken - std::min(taken, empty)) *
                          nanos_per_tick);
  }
}

void MeasureSlow(Row& row, uint64_t empty, double nanos_per_tick) {
  MeasureCall(row, empty, nanos_per_tick, [&row] { return row.slow(); });
}

void MeasureFast(Row& row, uint64_t empty, double nanos_per_tick) {
  MeasureCall(row, empty, nanos_per_tick,
              [] { return CurrentThreadCpuNanos(); });
}

// What no clock that counts by it can be cheaper than.
void MeasureCounter(Row& row, uint64_t empty, double nanos_per_tick) {
  MeasureCall(row, empty, nanos_per_tick,
              [] { return static_cast<int64_t>(ReadTsc()); });
}

double MeanOf(const Row& row) { return bench::Summarize(row.means).mean; }

void Print(Row& row) {
  const bench::Summary mean = bench::Summarize(row.means);
  std::printf("%-34s %8.1f ± %-6.1f", row.name.c_str(), mean.mean, mean.error);
  for (double q : {0.0, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0}) {
    std::printf(" %8.0f", bench::Quantile(row.singles, q));
  }
  std::printf("\n");
}

// One limit; returns whether it is kept.
bool Check(const char* what, double value, double limit, const char* unit) {
  const bool kept = value >= limit;
  std::printf("  %-62s %7.2f%s (at least %g%s): %s\n", what, value, unit, limit,
              unit, kept ? "yes" : "NO");
  return kept;
}

// The median over the rounds of what `a` cost more than `b`: in one of them a
// pause of the whole machine falls on one row alone.
double MedianDifference(const Row& a, const Row& b) {
  std::vector<double> differences;
  for (size_t i = 0; i < a.means.size(); ++i) {
    differences.push_back(a.means[i] - b.means[i]);
  }
  return bench::Quantile(differences, 0.5);
}

// In how many rounds `a` cost more than `b`, as a share.
double ShareOfRoundsAbove(const Row& a, const Row& b) {
  double above = 0;
  for (size_t i = 0; i < a.means.size(); ++i) above += a.means[i] > b.means[i];
  return above / static_cast<double>(a.means.size());
}

int Run() {
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create();
  STILLPOINT_CHECK(runtime.ok(), "no runtime");
  std::printf(
      "%s\n%d rounds, each row %d calls together and %d one by one a "
      "round; nanoseconds\n\n",
      std::string((*runtime)->cpu_clock_description()).c_str(), kRounds, kBatch,
      kSingles);

  // Somebody to look at, who leaves the processor alone.
  std::atomic<pid_t> other{0};
  const absl::StatusOr<ThreadHandle> sleeper = (*runtime)->Start([&other] {
    other.store(CurrentTid());
    other.notify_one();
    Park().IgnoreError();
  });
  STILLPOINT_CHECK(sleeper.ok(), "no thread");
  other.wait(0);

  AttachScope attached(**runtime, "bench");
  ManagedScope managed;
  const auto id = [](pid_t tid, CpuClock clock) {
    return CpuClockId(CpuClockOf::kThread, tid, clock);
  };
  const clockid_t total = id(0, CpuClock::kTotal);
  const clockid_t user = id(0, CpuClock::kUser);
  const clockid_t user_by_tid = id(CurrentTid(), CpuClock::kUser);
  const clockid_t user_of_other = id(other.load(), CpuClock::kUser);
  const std::string own_proc =
      "/proc/self/task/" + std::to_string(CurrentTid()) + "/stat";

  enum {
    kTotalOwn,
    kByTid,
    kByZero,
    kOther,
    kProc,
    kUsage,
    kHandle,
    kFast,
    kTsc
  };
  std::vector<Row> rows;
  const auto add = [&rows](std::string name, std::function<int64_t()> call) {
    rows.push_back({std::move(name), &MeasureSlow, std::move(call)});
  };
  add("total, own (clock id)", [=] { return ReadOrDie(total); });
  add("user, own, by TID", [=] { return ReadOrDie(user_by_tid); });
  add("user, own, by TID 0", [=] { return ReadOrDie(user); });
  add("user, another thread", [=] { return ReadOrDie(user_of_other); });
  add("user, own, /proc open+read+parse",
      [own_proc] { return UserTicksFromProc(own_proc); });
  add("both, own, getrusage", [] {
    rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return int64_t{usage.ru_utime.tv_usec} + usage.ru_stime.tv_usec;
  });
  add("both, another thread, its handle",
      [&sleeper] { return sleeper->GetCpuTimes()->total; });
  rows.push_back({"total, own (CurrentThreadCpuNanos)", &MeasureFast, nullptr});
  rows.push_back({"the time stamp counter alone", &MeasureCounter, nullptr});

  const double nanos_per_tick = bench::MeasureNanosPerTick();
  const uint64_t empty = bench::MeasureEmptyTicks();
  for (int round = 0; round < kRounds; ++round) {
    for (Row& row : rows) row.measure(row, empty, nanos_per_tick);
    Poll();
  }

  std::printf("%-34s %17s %8s %8s %8s %8s %8s %8s %8s %8s\n", "",
              "mean ± error", "p0", "p50", "p90", "p95", "p99", "p99.9",
              "p99.99", "max");
  for (Row& row : rows) Print(row);
  std::printf("\n");

  const double ratio = MeanOf(rows[kTotalOwn]) / MeanOf(rows[kFast]);
  const double bound = MeanOf(rows[kTotalOwn]) / MeanOf(rows[kTsc]);
  bool kept = Check(
      "the clock without a system call: times faster than own "
      "total",
      ratio, 50, "x");
  if (!kept && bound < 60) {
    // A cheap system call, or a dear counter: judged by what there is to gain.
    std::printf("    here the time stamp counter alone would be %.1fx, so:\n",
                bound);
    kept = Check("the same, in percent of the counter's", 100 * ratio / bound,
                 80, "%");
  }
  kept &= Check("user by TID 0: ns less than by TID, median of the rounds",
                MedianDifference(rows[kByTid], rows[kByZero]), 0, "");
  kept &= Check("user by TID 0: share of the rounds in which it was faster",
                100 * ShareOfRoundsAbove(rows[kByTid], rows[kByZero]), 50, "%");
  kept &= Check("user by clock id: times faster than /proc at the median",
                bench::Quantile(rows[kProc].singles, 0.5) /
                    bench::Quantile(rows[kByTid].singles, 0.5),
                5, "x");
  kept &= Check("user by clock id: times faster than /proc at p99",
                bench::Quantile(rows[kProc].singles, 0.99) /
                    bench::Quantile(rows[kByTid].singles, 0.99),
                1, "x");
  const FastCpuClockStats stats = CurrentThreadCpuClockStats();
  std::printf(
      "  bases taken %llu, overruns %llu (worst %lld ns), other rseq "
      "users %llu\n",
      static_cast<unsigned long long>(stats.bases),
      static_cast<unsigned long long>(stats.overruns),
      static_cast<long long>(stats.worst_overrun),
      static_cast<unsigned long long>(stats.other_users));
  {
    NativeScope native;
    sleeper->Unpark();
    sleeper->Join().IgnoreError();
  }
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace stillpoint

int main() {
  if (stillpoint::kDebugChecks) {
    std::printf("debug checks are on: not figures to quote\n");
  }
  return stillpoint::Run();
}
