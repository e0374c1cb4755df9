#include "runtime/options.h"

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/stillpoint.h"

namespace stillpoint {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<Options> parsed = ParseOptions(text);
  EXPECT_TRUE(absl::IsInvalidArgument(parsed.status())) << text;
  return std::string(parsed.status().message());
}

TEST(OptionsTest, EmptyTextChangesNothing) {
  for (const char* text : {"", " ", ",", " , ,"}) {
    const absl::StatusOr<Options> parsed = ParseOptions(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(FormatOptions(*parsed), FormatOptions(Options()));
  }
}

TEST(OptionsTest, EverySettingArrives) {
  const absl::StatusOr<Options> parsed = ParseOptions(
      "name = lisp, fence=full,start_protocol=start_lock,stack_size=64k,"
      "min_mutator_time=1.5ms, shutdown_timeout = inf");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->name, "lisp");
  EXPECT_EQ(parsed->fence, FencePolicy::kFull);
  EXPECT_EQ(parsed->start_protocol, StartProtocol::kUnderThreadStartLock);
  EXPECT_EQ(parsed->stack_size, size_t{64} << 10);
  EXPECT_EQ(parsed->min_mutator_time, std::chrono::microseconds(1500));
  EXPECT_EQ(parsed->shutdown_timeout, std::chrono::nanoseconds::max());
}

TEST(OptionsTest, TheLastSettingWinsAndTheBaseStays) {
  Options base;
  base.name = "base";
  const absl::StatusOr<Options> parsed =
      ParseOptions("fence=full,fence=membarrier", base);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->fence, FencePolicy::kMembarrier);
  EXPECT_EQ(parsed->name, "base");
}

TEST(OptionsTest, FormatIsWhatParseTakes) {
  const absl::StatusOr<Options> parsed = ParseOptions(
      "fence=full,stack_size=1m,min_mutator_time=0,shutdown_timeout=inf");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const absl::StatusOr<Options> again = ParseOptions(FormatOptions(*parsed));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(FormatOptions(*again), FormatOptions(*parsed));
  EXPECT_EQ(again->stack_size, size_t{1} << 20);
}

TEST(OptionsTest, UnknownKeysListTheKeys) {
  EXPECT_THAT(ErrorOf("fense=full"), HasSubstr("no option \"fense\""));
  EXPECT_THAT(ErrorOf("fense=full"), HasSubstr("start_protocol"));
  EXPECT_THAT(ErrorOf("=full"), HasSubstr("no option \"\""));
}

TEST(OptionsTest, BadValuesListWhatIsAllowed) {
  EXPECT_THAT(ErrorOf("fence=fast"), HasSubstr("auto, membarrier, full"));
  EXPECT_THAT(ErrorOf("fence"), HasSubstr("auto, membarrier, full"));
  EXPECT_THAT(ErrorOf("start_protocol="),
              HasSubstr("under_lock, start_lock, outside"));
  for (const char* size : {"-1", "+1", "1g", "k", "", "1 k", "0x10", "1.5k",
                           "99999999999999999999", "17592186044416m"}) {
    EXPECT_THAT(ErrorOf("stack_size=" + std::string(size)),
                HasSubstr("bytes, or with k or m"))
        << size;
  }
  for (const char* time : {"-1ns", "10", "11s", "fast", "", "inf"}) {
    EXPECT_THAT(ErrorOf("min_mutator_time=" + std::string(time)),
                HasSubstr("allowed are 0 to 10s"))
        << time;
  }
}

TEST(OptionsTest, TimerSlackIsUnsetOrATime) {
  using std::chrono::nanoseconds;
  EXPECT_EQ(Options().timer_slack, std::nullopt);
  EXPECT_THAT(FormatOptions(Options()), HasSubstr("timer_slack=unset"));
  const std::pair<const char*, std::optional<nanoseconds>> allowed[] = {
      {"1", nanoseconds(1)},
      {"1ns", nanoseconds(1)},
      {"50000", nanoseconds(50'000)},
      {"50us", nanoseconds(50'000)},
      {"1s", nanoseconds(1'000'000'000)},
      {"unset", std::nullopt},
  };
  Options base;
  base.timer_slack = nanoseconds(77);
  for (const auto& [text, value] : allowed) {
    const absl::StatusOr<Options> parsed =
        ParseOptions("timer_slack=" + std::string(text), base);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->timer_slack, value);
    const absl::StatusOr<Options> again =
        ParseOptions(FormatOptions(*parsed), base);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->timer_slack, value);
  }
  for (const char* text :
       {"0", "0ns", "0.5ns", "-1", "-1ns", "1000000001", "1.1s", "inf", "",
        "1 ns", "none", "18446744073709551615", "18446744073709551616"}) {
    EXPECT_THAT(ErrorOf("timer_slack=" + std::string(text)),
                AllOf(HasSubstr("allowed are unset, or 1ns to 1s"),
                      HasSubstr("0 is the thread's default, not none")))
        << text;
  }
}

TEST(OptionsTest, TheEnvironmentIsNamedInItsErrors) {
  ASSERT_EQ(unsetenv("STILLPOINT_TEST_OPTIONS"), 0);
  EXPECT_TRUE(OptionsFromEnvironment("STILLPOINT_TEST_OPTIONS").ok());
  ASSERT_EQ(setenv("STILLPOINT_TEST_OPTIONS", "fence=full", 1), 0);
  absl::StatusOr<Options> parsed =
      OptionsFromEnvironment("STILLPOINT_TEST_OPTIONS");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->fence, FencePolicy::kFull);
  ASSERT_EQ(setenv("STILLPOINT_TEST_OPTIONS", "fence=none", 1), 0);
  parsed = OptionsFromEnvironment("STILLPOINT_TEST_OPTIONS");
  EXPECT_THAT(std::string(parsed.status().message()),
              HasSubstr("STILLPOINT_TEST_OPTIONS: option fence = \"none\""));
}

TEST(OptionsTest, CreateRefusesWhatCannotBeParsedEither) {
  Options options;
  options.min_mutator_time = std::chrono::seconds(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(Runtime::Create(options).status()));
  options = Options();
  options.shutdown_timeout = std::chrono::nanoseconds(-1);
  const absl::Status status = Runtime::Create(options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("shutdown_timeout"));
  options = Options();
  options.fence = static_cast<FencePolicy>(77);
  EXPECT_TRUE(absl::IsInvalidArgument(Runtime::Create(options).status()));
  options = Options();
  options.name = "one,two";
  EXPECT_TRUE(absl::IsInvalidArgument(Runtime::Create(options).status()));
}

}  // namespace
}  // namespace stillpoint
