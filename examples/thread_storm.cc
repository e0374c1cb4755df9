// The main example: threads start and end as fast as they can while a safepoint
// is requested at regular intervals, under each of the three start protocols.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/storm/report.h"
#include "examples/storm/storm.h"
#include "runtime/observe/safepoint_log.h"
#include "runtime/stillpoint.h"

ABSL_FLAG(int, starters, 64, "threads that start threads, 1 to 10000");
ABSL_FLAG(int, alive, 16,
          "unfinished threads that each starter keeps at most, 1 to 10000");
ABSL_FLAG(int, busy, 1,
          "further threads that run managed code all the time, 0 to 1000");
ABSL_FLAG(int, work_us, 20,
          "microseconds of managed work in each started thread");
ABSL_FLAG(int, interval_ms, 5, "milliseconds from safepoint to safepoint");
ABSL_FLAG(double, seconds, 3, "length of the storm under each protocol");
ABSL_FLAG(int, stack_kb, 0,
          "stack of started threads in KiB; 0: the system's default");
ABSL_FLAG(std::string, protocol, "all",
          "all, under_lock (the OS thread is created and awaited while holding "
          "Threads_lock), start_lock (the same behind ThreadStart_lock) or "
          "outside (no lock while it is created)");
ABSL_FLAG(std::string, log, "none",
          "safepoint: one line for each stop (on standard error with --json); "
          "none");
ABSL_FLAG(bool, json, false, "print one JSON object instead of the table");

namespace stillpoint::storm {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void OnInterrupt(int) { interrupted.store(true); }

void EndCleanlyOnInterrupt() {
  struct sigaction action = {};
  action.sa_handler = &OnInterrupt;
  action.sa_flags = SA_RESTART | SA_RESETHAND;  // the second one kills
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int Fail(const std::string& message) {
  std::fprintf(stderr, "thread_storm: %s\n", message.c_str());
  return 2;
}

std::string CheckFlags() {
  const auto outside = [](const char* name, int value, int low, int high) {
    return value >= low && value <= high
               ? std::string()
               : absl::StrCat("--", name, "=", value, ": allowed are ", low,
                              " to ", high);
  };
  for (const std::string& error :
       {outside("starters", absl::GetFlag(FLAGS_starters), 1, 10000),
        outside("alive", absl::GetFlag(FLAGS_alive), 1, 10000),
        outside("busy", absl::GetFlag(FLAGS_busy), 0, 1000),
        outside("work_us", absl::GetFlag(FLAGS_work_us), 0, 1'000'000),
        outside("interval_ms", absl::GetFlag(FLAGS_interval_ms), 1, 60'000),
        outside("stack_kb", absl::GetFlag(FLAGS_stack_kb), 0, 1 << 20)}) {
    if (!error.empty()) return error;
  }
  const double seconds = absl::GetFlag(FLAGS_seconds);
  if (!(seconds > 0 && seconds <= 86400)) {
    return absl::StrCat("--seconds=", seconds, ": allowed are 0 to 86400");
  }
  return "";
}

std::vector<StartProtocol> ChosenProtocols() {
  const std::vector<StartProtocol> all = {StartProtocol::kUnderThreadsLock,
                                          StartProtocol::kUnderThreadStartLock,
                                          StartProtocol::kOutside};
  const std::string wanted = absl::GetFlag(FLAGS_protocol);
  if (wanted == "all") return all;
  for (StartProtocol protocol : all) {
    if (StartProtocolName(protocol) == wanted) return {protocol};
  }
  return {};
}

StormConfig ConfigFromFlags() {
  StormConfig config;
  config.starters = absl::GetFlag(FLAGS_starters);
  config.alive = absl::GetFlag(FLAGS_alive);
  config.busy = absl::GetFlag(FLAGS_busy);
  config.work = std::chrono::microseconds(absl::GetFlag(FLAGS_work_us));
  config.interval = std::chrono::milliseconds(absl::GetFlag(FLAGS_interval_ms));
  config.length = std::chrono::duration<double>(absl::GetFlag(FLAGS_seconds));
  config.stack_size = static_cast<size_t>(absl::GetFlag(FLAGS_stack_kb)) << 10;
  return config;
}

int Main() {
  if (const std::string error = CheckFlags(); !error.empty()) {
    return Fail(error);
  }
  const std::vector<StartProtocol> protocols = ChosenProtocols();
  if (protocols.empty()) {
    return Fail(absl::StrCat("--protocol=", absl::GetFlag(FLAGS_protocol),
                             ": allowed are all, under_lock, start_lock and "
                             "outside"));
  }
  const bool json = absl::GetFlag(FLAGS_json);
  const std::string log_flag = absl::GetFlag(FLAGS_log);
  if (log_flag != "none" && log_flag != "safepoint") {
    return Fail(
        absl::StrCat("--log=", log_flag, ": allowed are none and safepoint"));
  }
  EndCleanlyOnInterrupt();

  StormConfig config = ConfigFromFlags();
  std::unique_ptr<SafepointLogWriter> log;
  if (log_flag == "safepoint") {
    absl::StatusOr<std::unique_ptr<SafepointLogWriter>> writer =
        SafepointLogWriter::Create(json ? STDERR_FILENO : STDOUT_FILENO);
    if (!writer.ok()) return Fail(std::string(writer.status().message()));
    log = *std::move(writer);
    config.log = log.get();
  }
  if (!json) {
    absl::PrintF(
        "thread_storm: %d starters, at most %d unfinished threads each, %d "
        "busy,\n%d us of work in each thread, a safepoint every %d ms, %g s "
        "under each protocol\n\n",
        config.starters, config.alive, config.busy,
        absl::GetFlag(FLAGS_work_us), absl::GetFlag(FLAGS_interval_ms),
        absl::GetFlag(FLAGS_seconds));
    std::fflush(stdout);
  }

  const bool show_progress = isatty(STDERR_FILENO) == 1 && log == nullptr;
  std::vector<StormResult> results;
  uint64_t violations = 0;
  for (StartProtocol protocol : protocols) {
    const std::string name(StartProtocolName(protocol));
    absl::StatusOr<StormResult> result = RunStorm(
        config, protocol, interrupted, [&](double seconds, uint64_t starts) {
          if (!show_progress) return;
          std::fprintf(stderr, "\r%-11s %5.1f s %9llu threads started",
                       name.c_str(), seconds,
                       static_cast<unsigned long long>(starts));
        });
    if (show_progress) std::fprintf(stderr, "\r%*s\r", 60, "");
    if (!result.ok()) {
      return Fail(absl::StrCat(name, ": ", result.status().message()));
    }
    violations += result->violations;
    results.push_back(*std::move(result));
    if (interrupted.load()) break;
  }
  log.reset();  // its lines come before the table
  const std::string report = json ? FormatJson(results) : FormatTable(results);
  std::fwrite(report.data(), 1, report.size(), stdout);
  if (interrupted.load() && !json) {
    std::fprintf(stdout, "\n  Interrupted: these are the results so far.\n");
  }
  if (violations != 0) {
    return Fail(absl::StrCat(violations,
                             " stops found managed code running: the safepoint "
                             "is broken"));
  }
  return 0;
}

}  // namespace
}  // namespace stillpoint::storm

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "A storm of starting threads against safepoints, under three start "
      "protocols.\nShows how long the VM thread waits for Threads_lock, and "
      "how long it takes to stop the world.");
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    return stillpoint::storm::Fail(
        absl::StrCat("unexpected argument \"", rest[1], "\": see --help"));
  }
  return stillpoint::storm::Main();
}
