#include "runtime/options.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "runtime/base/absl_string.h"
#include "runtime/thread/fence.h"
#include "runtime/thread/threads_lock.h"
#include "runtime/thread/timer_slack.h"

namespace stillpoint {
namespace {

// One row of the table. `parse` is false for a value that is not allowed.
struct OptionRow {
  std::string key;
  std::string allowed;
  std::string meaning;
  std::function<bool(Options&, const std::string&)> parse;
  std::function<std::string(const Options&)> format;
  std::function<bool(const Options&)> valid;
  std::string reason = {};  // why nothing else is allowed; may be empty
};

template <typename T>
struct Named {
  T value;
  const char* name;
};

constexpr Named<FencePolicy> kFenceNames[] = {
    {FencePolicy::kAuto, "auto"},
    {FencePolicy::kMembarrier, "membarrier"},
    {FencePolicy::kFull, "full"},
};

constexpr Named<StartProtocol> kStartProtocolNames[] = {
    {StartProtocol::kUnderThreadsLock, "under_lock"},
    {StartProtocol::kUnderThreadStartLock, "start_lock"},
    {StartProtocol::kOutside, "outside"},
};

template <typename T, size_t kCount>
OptionRow Choice(std::string key, T Options::*field,
                 const Named<T> (&names)[kCount], std::string meaning) {
  const std::vector<Named<T>> table(names, names + kCount);
  OptionRow row;
  row.key = std::move(key);
  row.allowed = absl::StrJoin(
      table, ", ",
      [](std::string* out, const Named<T>& entry) { out->append(entry.name); });
  row.meaning = std::move(meaning);
  row.parse = [=](Options& options, const std::string& text) {
    for (const Named<T>& entry : table) {
      if (text != entry.name) continue;
      options.*field = entry.value;
      return true;
    }
    return false;
  };
  row.format = [=](const Options& options) -> std::string {
    for (const Named<T>& entry : table) {
      if (options.*field == entry.value) return entry.name;
    }
    return "?";
  };
  row.valid = [format = row.format](const Options& options) {
    return format(options) != "?";
  };
  return row;
}

std::string FormatNanos(std::chrono::nanoseconds value) {
  if (value == std::chrono::nanoseconds::max()) return "inf";
  return absl::FormatDuration(absl::FromChrono(value));
}

OptionRow Duration(std::string key, std::chrono::nanoseconds Options::*field,
                   std::chrono::nanoseconds min, std::chrono::nanoseconds max,
                   std::string meaning) {
  OptionRow row;
  row.key = std::move(key);
  row.allowed = absl::StrCat(FormatNanos(min), " to ", FormatNanos(max));
  row.meaning = std::move(meaning);
  row.valid = [=](const Options& options) {
    return options.*field >= min && options.*field <= max;
  };
  row.parse = [=](Options& options, const std::string& text) {
    absl::Duration parsed;
    // ToChronoNanoseconds saturates, so "inf" is the largest value.
    if (!absl::ParseDuration(text, &parsed)) return false;
    options.*field = absl::ToChronoNanoseconds(parsed);
    return options.*field >= min && options.*field <= max;
  };
  row.format = [=](const Options& options) {
    return FormatNanos(options.*field);
  };
  return row;
}

// A timer slack, or none. The system's tools take plain numbers of nanoseconds
// for it, and so does this.
OptionRow TimerSlack(std::string key,
                     std::optional<std::chrono::nanoseconds> Options::*field,
                     std::string meaning) {
  constexpr char kUnset[] = "unset";
  OptionRow row;
  row.key = std::move(key);
  row.allowed =
      absl::StrCat(kUnset, ", or ", FormatNanos(kMinTimerSlack), " to ",
                   FormatNanos(kMaxTimerSlack), " (without a unit: ns)");
  row.reason = std::string(kTimerSlackReason);
  row.meaning = std::move(meaning);
  row.valid = [=](const Options& options) {
    return !(options.*field).has_value() ||
           CheckTimerSlack(*(options.*field)).ok();
  };
  row.parse = [=, valid = row.valid](Options& options,
                                     const std::string& text) {
    if (text == kUnset) {
      options.*field = std::nullopt;
      return true;
    }
    const bool digits = std::all_of(text.begin(), text.end(), [](char c) {
      return absl::ascii_isdigit(c);
    });
    absl::Duration parsed;
    if (!absl::ParseDuration(digits ? text + "ns" : text, &parsed))
      return false;
    options.*field = absl::ToChronoNanoseconds(parsed);
    return valid(options);
  };
  row.format = [=](const Options& options) {
    return (options.*field).has_value() ? FormatNanos(*(options.*field))
                                        : kUnset;
  };
  return row;
}

// What is allowed, and why, for an error.
std::string Allowed(const OptionRow& row) {
  return absl::StrCat(": allowed are ", row.allowed,
                      row.reason.empty() ? "" : ": ", row.reason);
}

OptionRow Size(std::string key, size_t Options::*field, std::string meaning) {
  OptionRow row;
  row.key = std::move(key);
  row.allowed = "bytes, or with k or m";
  row.meaning = std::move(meaning);
  row.valid = [](const Options&) { return true; };
  row.parse = [=](Options& options, const std::string& text) {
    std::string digits = text;
    int shift = 0;
    if (!digits.empty() && (digits.back() == 'k' || digits.back() == 'm')) {
      shift = digits.back() == 'k' ? 10 : 20;
      digits.pop_back();
    }
    uint64_t value = 0;
    // SimpleAtoi takes signs and blanks, which are not sizes.
    if (digits.empty() || !absl::ascii_isdigit(digits.front()) ||
        !absl::ascii_isdigit(digits.back()) ||
        !absl::SimpleAtoi(digits, &value) || value > SIZE_MAX >> shift) {
      return false;
    }
    options.*field = static_cast<size_t>(value) << shift;
    return true;
  };
  row.format = [=](const Options& options) {
    return absl::StrCat(options.*field);
  };
  return row;
}

OptionRow Count(std::string key, size_t Options::*field, size_t most,
                std::string meaning) {
  OptionRow row;
  row.key = std::move(key);
  row.allowed = absl::StrCat("0 to ", most);
  row.meaning = std::move(meaning);
  row.valid = [=](const Options& options) { return options.*field <= most; };
  row.parse = [=](Options& options, const std::string& text) {
    uint64_t value = 0;
    // SimpleAtoi takes signs and blanks, which are no counts.
    if (text.empty() || !absl::ascii_isdigit(text.front()) ||
        !absl::ascii_isdigit(text.back()) || !absl::SimpleAtoi(text, &value)) {
      return false;
    }
    options.*field = value;
    return value <= most;
  };
  row.format = [=](const Options& options) {
    return absl::StrCat(options.*field);
  };
  return row;
}

OptionRow Number(std::string key, int Options::*field, int min, int max,
                 std::string meaning) {
  OptionRow row;
  row.key = std::move(key);
  row.allowed = absl::StrCat(min, " to ", max);
  row.meaning = std::move(meaning);
  row.valid = [=](const Options& options) {
    return options.*field >= min && options.*field <= max;
  };
  row.parse = [=](Options& options, const std::string& text) {
    int value = 0;
    if (!absl::SimpleAtoi(text, &value)) return false;
    options.*field = value;
    return value >= min && value <= max;
  };
  row.format = [=](const Options& options) {
    return absl::StrCat(options.*field);
  };
  return row;
}

OptionRow Switch(std::string key, bool Options::*field, std::string meaning) {
  OptionRow row;
  row.key = std::move(key);
  row.allowed = "true, false";
  row.meaning = std::move(meaning);
  row.valid = [](const Options&) { return true; };
  row.parse = [=](Options& options, const std::string& text) {
    options.*field = text == "true";
    return text == "true" || text == "false";
  };
  row.format = [=](const Options& options) -> std::string {
    return options.*field ? "true" : "false";
  };
  return row;
}

OptionRow Text(std::string key, std::string Options::*field,
               std::string meaning) {
  OptionRow row;
  row.key = std::move(key);
  row.allowed = "any text without a comma";
  row.meaning = std::move(meaning);
  // In code, too: what FormatOptions gives could not be parsed otherwise.
  row.valid = [=](const Options& options) {
    return (options.*field).find(',') == std::string::npos;
  };
  row.parse = [=](Options& options, const std::string& text) {
    options.*field = text;
    return true;
  };
  row.format = [=](const Options& options) { return options.*field; };
  return row;
}

// Made anew at each call: no static object with a destructor, and nobody calls
// it often.
std::vector<OptionRow> Table() {
  using std::chrono::nanoseconds;
  using std::chrono::seconds;
  return {
      Text("name", &Options::name,
           "names the VM thread for the system's tools"),
      Choice("fence", &Options::fence, kFenceNames,
             "who pays for the order between mutators and the stopper; auto "
             "measures"),
      Choice("start_protocol", &Options::start_protocol, kStartProtocolNames,
             "how starting threads and the VM thread share Threads_lock"),
      Size("stack_size", &Options::stack_size,
           "stack of started threads; 0 is the system's default"),
      TimerSlack("timer_slack", &Options::timer_slack,
                 "how late the kernel may be with timed waits of the runtime's "
                 "threads; unset leaves it alone"),
      Duration("min_mutator_time", &Options::min_mutator_time, nanoseconds(0),
               seconds(10),
               "at least this long from the end of a stop to the next"),
      Switch("requester_may_run", &Options::requester_may_run,
             "a requester runs its operation itself if the VM thread is idle"),
      Duration("safepoint_interval", &Options::safepoint_interval,
               nanoseconds(0), std::chrono::hours(24),
               "a stop at least this often, also when nobody asks; 0 is never"),
      Duration("safepoint_timeout", &Options::safepoint_timeout, nanoseconds(0),
               std::chrono::hours(24),
               "warn who is late when a stop, a handshake or a wait for "
               "Threads_lock takes this long; 0 is never"),
      Duration("safepoint_abort", &Options::safepoint_abort, nanoseconds(0),
               std::chrono::hours(24),
               "end the process this long after that warning; 0 is never"),
      Number("backtrace_signal", &Options::backtrace_signal, 0, NSIG - 1,
             "a signal for native backtraces of other threads; 0 is none"),
      Duration("cpu_clock_max_age", &Options::cpu_clock_max_age, nanoseconds(0),
               std::chrono::milliseconds(100),
               "worst error of the CPU clock without a system call; 0 turns it "
               "off"),
      Count("carriers", &Options::carriers, 256,
            "OS threads that run green ones; 0 is one for each processor that "
            "the process may use"),
      Count("extra_carriers", &Options::extra_carriers, 256,
            "at most so many more, while others are held up in native code"),
      Switch("pin_carriers", &Options::pin_carriers,
             "each carrier stays on one processor"),
      Switch("migrate_green_threads", &Options::migrate_green_threads,
             "green threads that have begun to run may change carriers"),
      Size("green_stack_size", &Options::green_stack_size,
           "stack of green threads; 0 is 64k"),
      Duration("time_slice", &Options::time_slice,
               std::chrono::microseconds(100), seconds(10),
               "a green thread that has run for so long makes room for others "
               "at its next poll"),
      Duration("native_handoff", &Options::native_handoff,
               std::chrono::microseconds(100), seconds(10),
               "green threads that wait behind one that is in native code for "
               "so long get another carrier, if they have not begun to run"),
      Duration("shutdown_timeout", &Options::shutdown_timeout, nanoseconds(0),
               nanoseconds::max(),
               "how long the destructor waits for threads that still live"),
  };
}

absl::Status Apply(std::string_view setting,
                   const std::vector<OptionRow>& table, Options& options) {
  const std::pair<std::string, std::string> split =
      absl::StrSplit(ToAbsl(setting), absl::MaxSplits('=', 1));
  const std::string key(absl::StripAsciiWhitespace(split.first));
  const std::string value(absl::StripAsciiWhitespace(split.second));
  for (const OptionRow& row : table) {
    if (row.key != key) continue;
    if (setting.find('=') == std::string_view::npos ||
        !row.parse(options, value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("option ", key, " = \"", value, "\"", Allowed(row)));
    }
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no option \"", key, "\": the options are ",
      absl::StrJoin(table, ", ", [](std::string* out, const OptionRow& row) {
        out->append(row.key);
      })));
}

}  // namespace

absl::StatusOr<Options> ParseOptions(std::string_view text, Options base) {
  const std::vector<OptionRow> table = Table();
  for (absl::string_view piece : absl::StrSplit(ToAbsl(text), ',')) {
    const std::string setting(absl::StripAsciiWhitespace(piece));
    if (setting.empty()) continue;
    if (absl::Status applied = Apply(setting, table, base); !applied.ok()) {
      return applied;
    }
  }
  return base;
}

absl::StatusOr<Options> OptionsFromEnvironment(const char* variable,
                                               Options base) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return base;
  absl::StatusOr<Options> parsed = ParseOptions(text, std::move(base));
  if (parsed.ok()) return parsed;
  return absl::InvalidArgumentError(
      absl::StrCat(variable, ": ", parsed.status().message()));
}

absl::Status CheckOptions(const Options& options) {
  for (const OptionRow& row : Table()) {
    if (row.valid(options)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "option ", row.key, " = ", row.format(options), Allowed(row)));
  }
  if (options.safepoint_interval > std::chrono::nanoseconds(0) &&
      options.safepoint_interval < options.min_mutator_time) {
    return absl::InvalidArgumentError(absl::StrCat(
        "option safepoint_interval = ", FormatNanos(options.safepoint_interval),
        ": allowed are 0, or at least min_mutator_time = ",
        FormatNanos(options.min_mutator_time)));
  }
#if !defined(__x86_64__)
  if (options.migrate_green_threads) {
    return absl::InvalidArgumentError(
        "option migrate_green_threads = true: allowed on x86-64 only, where "
        "compilers reach the runtime's own thread-local block without keeping "
        "its address");
  }
#endif
  return absl::OkStatus();
}

std::string FormatOptions(const Options& options) {
  return absl::StrJoin(
      Table(), ",", [&](std::string* out, const OptionRow& row) {
        absl::StrAppend(out, row.key, "=", row.format(options));
      });
}

std::string OptionsTable() {
  std::string text =
      "| option | default | allowed | meaning |\n| --- | --- | --- | --- |\n";
  const Options defaults;
  for (const OptionRow& row : Table()) {
    absl::StrAppend(&text, "| `", row.key, "` | `", row.format(defaults),
                    "` | ", row.allowed, " | ", row.meaning, " |\n");
  }
  return text;
}

}  // namespace stillpoint
