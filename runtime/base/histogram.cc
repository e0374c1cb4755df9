#include "runtime/base/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace stillpoint {
namespace {

// 2^kSubBits buckets per power of two.
constexpr int kSubBits = 5;
constexpr int64_t kLinearLimit = int64_t{1} << (kSubBits + 1);
constexpr size_t kBuckets = static_cast<size_t>((63 - kSubBits) + 1)
                            << kSubBits;

}  // namespace

Histogram::Histogram() : buckets_(kBuckets, 0) {}

size_t Histogram::BucketOf(int64_t value) {
  if (value < kLinearLimit) return static_cast<size_t>(value);
  const int top = std::bit_width(static_cast<uint64_t>(value)) - 1;
  const int shift = top - kSubBits;
  // value >> shift lies in [2^kSubBits, 2^(kSubBits+1)).
  return (static_cast<size_t>(shift) << kSubBits) +
         static_cast<size_t>(value >> shift);
}

int64_t Histogram::UpperEnd(size_t bucket) {
  if (bucket < static_cast<size_t>(kLinearLimit)) {
    return static_cast<int64_t>(bucket);
  }
  const size_t shift = (bucket >> kSubBits) - 1;
  const uint64_t sub = bucket - (shift << kSubBits);
  return static_cast<int64_t>(((sub + 1) << shift) - 1);
}

void Histogram::Add(int64_t value) {
  value = std::max<int64_t>(value, 0);
  ++buckets_[BucketOf(value)];
  ++count_;
  max_ = std::max(max_, value);
}

void Histogram::Merge(const Histogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
}

uint64_t Histogram::RankOf(double q) const {
  const double exact = std::ceil(q * static_cast<double>(count_));
  return std::max<uint64_t>(
      1, std::min(count_, static_cast<uint64_t>(std::max(0.0, exact))));
}

int64_t Histogram::Quantile(double q) const {
  if (count_ == 0) return 0;
  const uint64_t rank = RankOf(q);
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::min(UpperEnd(i), max_);
  }
  return max_;
}

bool Histogram::HasQuantile(double q) const {
  // By rank, not by count * (1 - q): 1 - 0.9 is a little less than 0.1.
  return count_ != 0 && RankOf(q) < count_;
}

uint64_t Histogram::CountBetween(int64_t low, int64_t high) const {
  if (high <= low || high <= 0) return 0;
  const size_t first = BucketOf(std::max<int64_t>(low, 0));
  const size_t last = BucketOf(high - 1);
  uint64_t n = 0;
  for (size_t i = first; i <= last; ++i) n += buckets_[i];
  return n;
}

}  // namespace stillpoint
