#include "examples/storm/report.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/storm/storm.h"
#include "runtime/base/histogram.h"

namespace stillpoint::storm {
namespace {

std::string FormatNanos(int64_t nanos) {
  const double value = static_cast<double>(nanos);
  if (nanos < 1'000) return absl::StrFormat("%d ns", nanos);
  if (nanos < 1'000'000) return absl::StrFormat("%.3g us", value / 1e3);
  if (nanos < 1'000'000'000) return absl::StrFormat("%.3g ms", value / 1e6);
  return absl::StrFormat("%.3g s", value / 1e9);
}

std::string FormatQuantile(const Histogram& histogram, double q) {
  if (!histogram.HasQuantile(q)) {
    return absl::StrCat(FormatNanos(histogram.max()), "*");
  }
  return FormatNanos(histogram.Quantile(q));
}

void AppendDistribution(const char* label, const StormResult& result,
                        const Histogram& histogram, std::string* text) {
  absl::StrAppendFormat(
      text, "  %-11s %-12s %7d %10s %10s %10s %10s\n", result.protocol, label,
      histogram.count(), FormatQuantile(histogram, 0.5),
      FormatQuantile(histogram, 0.99), FormatQuantile(histogram, 0.999),
      FormatNanos(histogram.max()));
}

// One column of bars per protocol, one line per decade.
void AppendHistograms(const std::vector<StormResult>& results,
                      std::string* text) {
  constexpr int kBar = 16;
  absl::StrAppend(text, "\n  Time to safepoint, share of the stops\n",
                  "                    ");
  for (const StormResult& result : results) {
    absl::StrAppendFormat(text, "%-*s", kBar + 9, result.protocol);
  }
  absl::StripTrailingAsciiWhitespace(text);
  absl::StrAppend(text, "\n");
  for (int64_t low = 0, high = 10'000; low < 10'000'000'000;
       low = high, high *= 10) {
    const bool any =
        std::any_of(results.begin(), results.end(), [&](const StormResult& r) {
          return r.time_to_safepoint.CountBetween(low, high) > 0;
        });
    if (!any) continue;
    absl::StrAppendFormat(text, "  %7s - %-7s ", FormatNanos(low),
                          FormatNanos(high));
    for (const StormResult& result : results) {
      const Histogram& histogram = result.time_to_safepoint;
      const double share =
          histogram.count() == 0
              ? 0
              : static_cast<double>(histogram.CountBetween(low, high)) /
                    static_cast<double>(histogram.count());
      const int length =
          share > 0 ? std::max(1, static_cast<int>(share * kBar + 0.5)) : 0;
      absl::StrAppendFormat(text, "%-*s %5.1f %% ", kBar,
                            std::string(static_cast<size_t>(length), '#'),
                            share * 100);
    }
    absl::StripTrailingAsciiWhitespace(text);
    absl::StrAppend(text, "\n");
  }
}

void AppendJsonHistogram(const char* name, const Histogram& histogram,
                         std::string* text) {
  absl::StrAppendFormat(
      text, "\"%s\":{\"n\":%d,\"p50\":%d,\"p99\":%d,\"p999\":%d,\"max\":%d}",
      name, histogram.count(), histogram.Quantile(0.5),
      histogram.Quantile(0.99), histogram.Quantile(0.999), histogram.max());
}

}  // namespace

std::string FormatTable(const std::vector<StormResult>& results) {
  std::string text;
  absl::StrAppendFormat(&text, "  %-11s %9s %9s %12s %11s\n", "protocol",
                        "starters", "starts/s", "safepoints", "violations");
  for (const StormResult& result : results) {
    absl::StrAppendFormat(&text, "  %-11s %9d %9.0f %12d %11d\n",
                          result.protocol, result.starters,
                          result.starts_per_second(), result.safepoints(),
                          result.violations);
  }
  absl::StrAppendFormat(&text, "\n  %-11s %-12s %7s %10s %10s %10s %10s\n",
                        "protocol", "", "samples", "p50", "p99", "p99.9",
                        "max");
  for (const StormResult& result : results) {
    AppendDistribution("lock wait", result, result.threads_lock_wait, &text);
  }
  for (const StormResult& result : results) {
    AppendDistribution("to safepoint", result, result.time_to_safepoint, &text);
  }
  absl::StrAppend(
      &text,
      "  (* too few samples for this quantile: the maximum. Time to "
      "safepoint includes\n  the wait for Threads_lock.)\n");
  AppendHistograms(results, &text);
  for (const StormResult& result : results) {
    if (result.failed_starts == 0) continue;
    absl::StrAppend(&text, "\n  ", result.protocol, ": ", result.failed_starts,
                    " starts failed, the first: ", result.first_failure, "\n");
  }
  return text;
}

std::string FormatJson(const std::vector<StormResult>& results) {
  std::string text = "{\"protocols\":[";
  for (size_t i = 0; i < results.size(); ++i) {
    const StormResult& result = results[i];
    absl::StrAppendFormat(
        &text,
        "%s{\"name\":\"%s\",\"starters\":%d,\"seconds\":%.3f,"
        "\"starts_per_second\":%.1f,\"failed_starts\":%d,\"safepoints\":%d,",
        i == 0 ? "" : ",", result.protocol, result.starters, result.seconds,
        result.starts_per_second(), result.failed_starts, result.safepoints());
    AppendJsonHistogram("threads_lock_wait_ns", result.threads_lock_wait,
                        &text);
    absl::StrAppend(&text, ",");
    AppendJsonHistogram("time_to_safepoint_ns", result.time_to_safepoint,
                        &text);
    absl::StrAppend(&text, ",\"violations\":", result.violations, "}");
  }
  absl::StrAppend(&text, "]}\n");
  return text;
}

}  // namespace stillpoint::storm
