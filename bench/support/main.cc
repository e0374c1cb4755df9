// main() of every benchmark: Google Benchmark's, with other defaults.

#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "runtime/base/check.h"

int main(int argc, char** argv) {
  // In front of the user's own, which win.
  std::string defaults[] = {"--benchmark_repetitions=5",
                            "--benchmark_display_aggregates_only=true",
                            "--benchmark_counters_tabular=true"};
  std::vector<char*> arguments = {argv[0]};
  for (std::string& flag : defaults) arguments.push_back(flag.data());
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);

  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
  if (stillpoint::kDebugChecks) {
    benchmark::AddCustomContext("debug checks", "on: not figures to quote");
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
