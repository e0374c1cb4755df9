#include "tests/support/runtime_test.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/await.h"

namespace stillpoint::testing {

std::vector<Configuration> AllConfigurations() {
  std::vector<Configuration> all;
  for (FencePolicy fence : {FencePolicy::kMembarrier, FencePolicy::kFull}) {
    for (StartProtocol protocol :
         {StartProtocol::kUnderThreadsLock,
          StartProtocol::kUnderThreadStartLock, StartProtocol::kOutside}) {
      all.push_back({fence, protocol});
    }
    all.push_back({fence, StartProtocol::kOutside, false});
  }
  return all;
}

std::string ConfigurationName(
    const ::testing::TestParamInfo<Configuration>& info) {
  std::string name =
      info.param.fence == FencePolicy::kMembarrier ? "membarrier_" : "full_";
  name += StartProtocolName(info.param.protocol);
  if (!info.param.requester_may_run) name += "_vm_thread_only";
  return name;
}

Options TestOptions(const Configuration& configuration) {
  Options options;
  options.fence = configuration.fence;
  options.start_protocol = configuration.protocol;
  options.requester_may_run = configuration.requester_may_run;
  options.min_mutator_time = std::chrono::nanoseconds(0);
  options.stack_size = 512 * 1024;
  return options;
}

Options TestOptions() {
  return TestOptions({FencePolicy::kFull, StartProtocol::kOutside});
}

std::unique_ptr<Runtime> MakeRuntime(Options options) {
  absl::StatusOr<std::unique_ptr<Runtime>> made =
      Runtime::Create(std::move(options));
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

namespace {

ThreadHandle StartKindOrFail(Runtime& runtime, ThreadKind kind,
                             std::string_view name,
                             absl::AnyInvocable<void()> body) {
  ThreadOptions options;
  options.kind = kind;
  options.name = std::string(name);
  absl::StatusOr<ThreadHandle> started =
      runtime.Start(std::move(options), std::move(body));
  EXPECT_TRUE(started.ok()) << started.status();
  return started.ok() ? *std::move(started) : ThreadHandle();
}

}  // namespace

ThreadHandle StartOrFail(Runtime& runtime, std::string_view name,
                         absl::AnyInvocable<void()> body) {
  return StartKindOrFail(runtime, ThreadKind::kNative, name, std::move(body));
}

ThreadHandle StartGreenOrFail(Runtime& runtime, std::string_view name,
                              absl::AnyInvocable<void()> body) {
  return StartKindOrFail(runtime, ThreadKind::kGreen, name, std::move(body));
}

bool IsInState(const Runtime& runtime, std::string_view name,
               ThreadState state) {
  const ThreadSnapshot threads = runtime.Threads();
  for (const PinnedThread& thread : threads) {
    if (thread.name() == name && thread.state() == state) return true;
  }
  return false;
}

void AwaitState(const Runtime& runtime, std::string_view name,
                ThreadState state) {
  Await([&] { return IsInState(runtime, name, state); });
}

void StopAndCheck(Runtime& runtime, StopCanary& canary) {
  const absl::Status stopped =
      runtime.AtSafepoint("check", [&](World&) { canary.Check(); });
  EXPECT_TRUE(stopped.ok()) << stopped;
}

void RuntimeTest::TearDown() {
  End();
  EXPECT_EQ(canary_.violations(), 0u);
}

void RuntimeTest::Make(Options options) {
  End();
  runtime_ = MakeRuntime(std::move(options));
  ASSERT_NE(runtime_, nullptr);
}

void RuntimeTest::End() {
  if (runtime_ == nullptr) return;
  const absl::Status ended = runtime_->Shutdown(Deadline::Infinite());
  EXPECT_TRUE(ended.ok()) << ended;
  runtime_ = nullptr;
}

}  // namespace stillpoint::testing
