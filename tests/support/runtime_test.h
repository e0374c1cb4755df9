// A runtime in each of the configurations that a test must hold in.

#ifndef STILLPOINT_TESTS_SUPPORT_RUNTIME_TEST_H_
#define STILLPOINT_TESTS_SUPPORT_RUNTIME_TEST_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "gtest/gtest.h"
#include "runtime/observe/stop_canary.h"
#include "runtime/stillpoint.h"

namespace stillpoint::testing {

// Who pays for the order, how starting threads share Threads_lock, and whether
// a requester may be the stopper itself.
struct Configuration {
  FencePolicy fence;
  StartProtocol protocol;
  bool requester_may_run = true;
};

std::vector<Configuration> AllConfigurations();
std::string ConfigurationName(
    const ::testing::TestParamInfo<Configuration>& info);

// Options for tests: no pause between stops, small stacks.
Options TestOptions(const Configuration& configuration);
// The same with a default configuration.
Options TestOptions();

// A runtime made from `options`; a failure to make one is a test failure and
// gives null.
std::unique_ptr<Runtime> MakeRuntime(Options options = TestOptions());

// Starts a thread; a failure to start is a test failure.
ThreadHandle StartOrFail(Runtime& runtime, std::string_view name,
                         absl::AnyInvocable<void()> body);

// The same for a green one.
ThreadHandle StartGreenOrFail(Runtime& runtime, std::string_view name,
                              absl::AnyInvocable<void()> body);

// Whether a member of that name is in `state` at this moment.
bool IsInState(const Runtime& runtime, std::string_view name,
               ThreadState state);
void AwaitState(const Runtime& runtime, std::string_view name,
                ThreadState state);

// A stop, and the canary is asked in it.
void StopAndCheck(Runtime& runtime, StopCanary& canary);

// Runs each test once per configuration. At its end no thread may be left, and
// the canary must not have seen anybody in managed code during a stop (I1).
class RuntimeTest : public ::testing::TestWithParam<Configuration> {
 protected:
  void SetUp() override { Make(TestOptions(GetParam())); }
  void TearDown() override;

  // In place of the runtime that SetUp made.
  void Make(Options options);
  // Shuts down, expecting that all threads have left, and destroys it.
  void End();

  Runtime& runtime() { return *runtime_; }
  StopCanary& canary() { return canary_; }

 private:
  StopCanary canary_;
  std::unique_ptr<Runtime> runtime_;
};

}  // namespace stillpoint::testing

// All configurations for a fixture derived from RuntimeTest.
#define STILLPOINT_IN_ALL_CONFIGURATIONS(fixture)                      \
  INSTANTIATE_TEST_SUITE_P(                                            \
      All, fixture,                                                    \
      ::testing::ValuesIn(::stillpoint::testing::AllConfigurations()), \
      ::stillpoint::testing::ConfigurationName)

#endif  // STILLPOINT_TESTS_SUPPORT_RUNTIME_TEST_H_
