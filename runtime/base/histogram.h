// A histogram of non-negative durations with bounded relative error.

#ifndef STILLPOINT_RUNTIME_BASE_HISTOGRAM_H_
#define STILLPOINT_RUNTIME_BASE_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stillpoint {

// Log-linear buckets: values below 64 are exact, larger ones are kept to within
// 1/32. One writer at a time; the caller synchronises. About 15 KiB.
class Histogram {
 public:
  Histogram();

  // Negative values count as 0.
  void Add(int64_t value);
  void Merge(const Histogram& other);

  uint64_t count() const { return count_; }
  // Exact; 0 when empty.
  int64_t max() const { return max_; }

  // The smallest recorded magnitude that at least `q` (0..1) of the samples do
  // not exceed: the upper end of its bucket, never above max(). 0 when empty.
  int64_t Quantile(double q) const;

  // Whether Quantile(q) is more than the maximum under another name: at least
  // one sample has to rank above it, so 1/(1-q) samples are needed.
  bool HasQuantile(double q) const;

  // Samples in [low, high).
  uint64_t CountBetween(int64_t low, int64_t high) const;

 private:
  static size_t BucketOf(int64_t value);
  static int64_t UpperEnd(size_t bucket);
  uint64_t RankOf(double q) const;

  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  int64_t max_ = 0;
};

}  // namespace stillpoint

#endif  // STILLPOINT_RUNTIME_BASE_HISTOGRAM_H_
