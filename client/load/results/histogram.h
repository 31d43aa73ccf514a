// Counts durations in buckets whose width grows with the value: any number of them in at most 200
// KiB, every percentile within 0.1 %. Two histograms add up exactly.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace castor::load {

// The buckets of an HdrHistogram with lowest discernible value 1,000 ns, three significant digits,
// and a highest value of an hour. Buckets are 512 ns wide below 1.05 ms, and above that at most
// 1/1024 of the values in them. Bucket i's position in HdrHistogram's array of counts is i.
namespace buckets {

inline constexpr int64_t kHighestValue = 3'600'000'000'000;
inline constexpr int kUnitBits = 9;   // 512 ns
inline constexpr int kHalfBits = 10;  // each doubling of the value has 1,024 buckets
inline constexpr int kCount = 24 << kHalfBits;

// REQUIRES: 0 <= value_ns <= kHighestValue.
inline int IndexOf(int64_t value_ns) {
  constexpr uint64_t kFirst = (uint64_t{2} << (kUnitBits + kHalfBits)) - 1;
  const auto value = static_cast<uint64_t>(value_ns);
  const int doubling = std::bit_width(value | kFirst) - (kUnitBits + kHalfBits + 1);
  return (doubling << kHalfBits) + static_cast<int>(value >> (doubling + kUnitBits));
}

// The least and the greatest value in a bucket. REQUIRE: 0 <= index < kCount.
int64_t LowestOf(int index);
int64_t HighestOf(int index);

}  // namespace buckets

// Values are nanoseconds; those below 0 count as 0, those above an hour as an hour. A timeline has
// a histogram for each second, so few values are kept as a list of their buckets, two bytes each.
// Where that list would outgrow an array of all counts, the array replaces it. An empty histogram
// owns no memory. Not thread-safe.
class Histogram {
 public:
  // Takes a few ns unless memory must grow.
  void Record(int64_t value_ns, int64_t count = 1);
  void Add(const Histogram& other);

  int64_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  int64_t min() const { return min_; }  // exact; 0 when empty
  int64_t max() const { return max_; }  // exact; 0 when empty
  double mean() const;                  // exact; 0 when empty
  int64_t sum() const { return sum_; }  // saturates at the greatest int64_t

  // The least recorded value that is not below `quantile` of all values, as HdrHistogram defines
  // it: its bucket's highest value, but at most max(). 0 when empty.
  int64_t ValueAt(double quantile) const;

  // Restores saved counts and the exact figures. REQUIRES: at least one bucket, all in range;
  // counts above 0 whose sum does not overflow; 0 <= min <= max.
  struct Bucket {
    int index = 0;
    int64_t count = 0;
  };
  static Histogram Restore(const std::vector<Bucket>& buckets, int64_t min, int64_t max,
                           int64_t sum);

  // The buckets that are not empty, by index.
  std::vector<Bucket> Buckets() const;

 private:
  static constexpr size_t kMaxListed = buckets::kCount * sizeof(int64_t) / sizeof(uint16_t);

  void AddToBucket(int index, int64_t count);

  std::vector<uint16_t> list_;   // buckets of single values, in no order ...
  std::vector<int64_t> counts_;  // ... or the counts of all buckets; empty: there is the list
  int64_t count_ = 0, min_ = 0, max_ = 0, sum_ = 0;
};

}  // namespace castor::load
