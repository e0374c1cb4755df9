#include "examples/storm/report.h"

#include <string>
#include <vector>

#include "examples/storm/storm.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stillpoint::storm {
namespace {

using testing::HasSubstr;
using testing::Not;

StormResult ResultWith(const std::string& protocol, int samples) {
  StormResult result;
  result.protocol = protocol;
  result.starters = 4;
  result.seconds = 2;
  result.starts = 5000;
  for (int i = 0; i < samples; ++i) {
    result.threads_lock_wait.Add(50);
    result.time_to_safepoint.Add(2'000'000);
  }
  return result;
}

TEST(ReportTest, JsonHasTheAgreedFields) {
  EXPECT_EQ(FormatJson({ResultWith("outside", 3)}),
            "{\"protocols\":[{\"name\":\"outside\",\"starters\":4,"
            "\"seconds\":2.000,\"starts_per_second\":2500.0,"
            "\"failed_starts\":0,\"safepoints\":3,"
            "\"threads_lock_wait_ns\":{\"n\":3,\"p50\":50,\"p99\":50,"
            "\"p999\":50,\"max\":50},"
            "\"time_to_safepoint_ns\":{\"n\":3,\"p50\":2000000,"
            "\"p99\":2000000,\"p999\":2000000,\"max\":2000000},"
            "\"violations\":0}]}\n");
}

TEST(ReportTest, JsonOfNothingIsStillOneObject) {
  EXPECT_EQ(FormatJson({}), "{\"protocols\":[]}\n");
}

TEST(ReportTest, QuantilesWithoutEnoughSamplesAreMarked) {
  EXPECT_THAT(FormatTable({ResultWith("outside", 50)}), HasSubstr("50 ns*"));
  EXPECT_THAT(FormatTable({ResultWith("outside", 1000)}),
              Not(HasSubstr("50 ns*")));
}

TEST(ReportTest, TheHistogramHasABarForEachProtocol) {
  const std::string table =
      FormatTable({ResultWith("under_lock", 10), ResultWith("outside", 10)});
  EXPECT_THAT(table, HasSubstr("1 ms - 10 ms"));
  EXPECT_THAT(table, HasSubstr("################ 100.0 %"));
  EXPECT_THAT(table, Not(HasSubstr(" \n")));  // no space at a line's end
}

TEST(ReportTest, FailedStartsAreShownWithTheirReason) {
  StormResult result = ResultWith("outside", 10);
  result.failed_starts = 7;
  result.first_failure = "no more threads";
  EXPECT_THAT(FormatTable({result}),
              HasSubstr("7 starts failed, the first: no more threads"));
}

}  // namespace
}  // namespace stillpoint::storm
