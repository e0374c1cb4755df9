#include "runtime/base/histogram.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace stillpoint {
namespace {

constexpr double kQuantiles[] = {0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0};

// Log-uniform, so that every magnitude takes part.
std::vector<int64_t> RandomValues(uint32_t seed, size_t count) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> values(count);
  for (int64_t& value : values) {
    const int bits = static_cast<int>(random() % 63) + 1;
    value = static_cast<int64_t>(random() >> (64 - bits));
  }
  return values;
}

Histogram HistogramOf(const std::vector<int64_t>& values) {
  Histogram histogram;
  for (const int64_t value : values) histogram.Add(value);
  return histogram;
}

TEST(HistogramTest, EmptyAnswersZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.max(), 0);
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  EXPECT_FALSE(histogram.HasQuantile(0.5));
  EXPECT_EQ(histogram.CountBetween(0, INT64_MAX), 0u);
}

TEST(HistogramTest, ValuesBelow64AreExact) {
  for (int64_t value = 0; value < 64; ++value) {
    Histogram histogram;
    histogram.Add(value);
    histogram.Add(INT64_MAX);
    EXPECT_EQ(histogram.Quantile(0.5), value);
    EXPECT_EQ(histogram.CountBetween(value, value + 1), 1u);
  }
}

TEST(HistogramTest, QuantilesAreWithinOne32ndOfExactSort) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    // Odd sizes too, where the rank is not a whole number.
    std::vector<int64_t> values = RandomValues(seed, 1000 + 37 * seed);
    const Histogram histogram = HistogramOf(values);
    std::sort(values.begin(), values.end());
    EXPECT_EQ(histogram.count(), values.size());
    EXPECT_EQ(histogram.max(), values.back());
    for (const double q : kQuantiles) {
      const double rank = std::ceil(q * static_cast<double>(values.size()));
      const int64_t exact =
          values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
      const int64_t got = histogram.Quantile(q);
      EXPECT_GE(got, exact) << "q = " << q << ", seed " << seed;
      EXPECT_LE(got - exact, exact / 32) << "q = " << q << ", seed " << seed;
      EXPECT_LE(got, histogram.max());
    }
  }
}

TEST(HistogramTest, BucketEdgesKeepTheBound) {
  for (int bit = 0; bit < 63; ++bit) {
    const int64_t power = int64_t{1} << bit;
    for (const int64_t value : {power - 1, power, power + 1}) {
      Histogram histogram;
      histogram.Add(value);
      histogram.Add(INT64_MAX);  // else max() would make the answer exact
      const int64_t got = histogram.Quantile(0.5);
      EXPECT_GE(got, value);
      EXPECT_LE(got - value, value / 32) << value;
    }
  }
}

TEST(HistogramTest, ExtremeValues) {
  Histogram histogram;
  histogram.Add(INT64_MIN);
  histogram.Add(-1);
  histogram.Add(0);
  histogram.Add(INT64_MAX);
  EXPECT_EQ(histogram.count(), 4u);
  EXPECT_EQ(histogram.max(), INT64_MAX);
  EXPECT_EQ(histogram.Quantile(0.75), 0);
  EXPECT_EQ(histogram.Quantile(1.0), INT64_MAX);
  EXPECT_EQ(histogram.CountBetween(INT64_MIN, 1), 3u);
  EXPECT_EQ(histogram.CountBetween(1, INT64_MAX), 1u);
}

TEST(HistogramTest, HasQuantileNeedsASampleBeyondIt) {
  const struct {
    double q;
    int samples;
  } cases[] = {{0.5, 2},    {0.75, 4},     {0.9, 10},
               {0.99, 100}, {0.999, 1000}, {0.9999, 10'000}};
  for (const auto& [q, samples] : cases) {
    Histogram histogram;
    for (int i = 1; i < samples; ++i) {
      histogram.Add(i);
      EXPECT_FALSE(histogram.HasQuantile(q)) << q << " of " << i;
    }
    histogram.Add(samples);
    EXPECT_TRUE(histogram.HasQuantile(q)) << q << " of " << samples;
    EXPECT_FALSE(histogram.HasQuantile(1.0));
  }
}

TEST(HistogramTest, MergeEqualsAddingAll) {
  const std::vector<int64_t> a = RandomValues(1, 500);
  const std::vector<int64_t> b = RandomValues(2, 700);
  std::vector<int64_t> all = a;
  all.insert(all.end(), b.begin(), b.end());
  const Histogram expected = HistogramOf(all);

  Histogram merged = HistogramOf(a);
  merged.Merge(HistogramOf(b));
  EXPECT_EQ(merged.count(), expected.count());
  EXPECT_EQ(merged.max(), expected.max());
  for (const double q : kQuantiles) {
    EXPECT_EQ(merged.Quantile(q), expected.Quantile(q));
  }

  merged.Merge(Histogram());
  EXPECT_EQ(merged.count(), expected.count());
  EXPECT_EQ(merged.max(), expected.max());
}

TEST(HistogramTest, CountBetweenIsExactAtPowersOfTwo) {
  const std::vector<int64_t> values = RandomValues(3, 5000);
  const Histogram histogram = HistogramOf(values);
  for (int low_bit = 0; low_bit < 62; ++low_bit) {
    for (const int width : {1, 5, 62}) {
      const int64_t low = int64_t{1} << low_bit;
      const int64_t high = int64_t{1} << std::min(62, low_bit + width);
      const auto exact =
          std::count_if(values.begin(), values.end(),
                        [&](int64_t v) { return low <= v && v < high; });
      EXPECT_EQ(histogram.CountBetween(low, high),
                static_cast<uint64_t>(exact));
    }
  }
}

TEST(HistogramTest, CountBetweenOfAnEmptyRangeIsZero) {
  Histogram histogram;
  histogram.Add(0);
  histogram.Add(100);
  EXPECT_EQ(histogram.CountBetween(100, 100), 0u);
  EXPECT_EQ(histogram.CountBetween(101, 1), 0u);
  EXPECT_EQ(histogram.CountBetween(-5, 0), 0u);
  EXPECT_EQ(histogram.CountBetween(INT64_MIN, INT64_MIN), 0u);
  EXPECT_EQ(histogram.CountBetween(-5, 1), 1u);
}

}  // namespace
}  // namespace stillpoint
