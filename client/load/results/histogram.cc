#include "client/load/results/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace castor::load {

namespace buckets {

int64_t LowestOf(int index) {
  constexpr int kHalf = 1 << kHalfBits;
  const int doubling = std::max(0, (index >> kHalfBits) - 1);
  return int64_t{index - doubling * kHalf} << (doubling + kUnitBits);
}

int64_t HighestOf(int index) {
  const int doubling = std::max(0, (index >> kHalfBits) - 1);
  return LowestOf(index) + (int64_t{1} << (doubling + kUnitBits)) - 1;
}

}  // namespace buckets

namespace {

int64_t SumOrMax(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

int64_t ProductOrMax(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace

void Histogram::Record(int64_t value_ns, int64_t count) {
  if (count <= 0) return;
  const int64_t value = std::clamp<int64_t>(value_ns, 0, buckets::kHighestValue);
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ = SumOrMax(sum_, ProductOrMax(value, count));
  count_ += count;
  AddToBucket(buckets::IndexOf(value), count);
}

void Histogram::AddToBucket(int index, int64_t count) {
  if (counts_.empty()) {
    if (count <= static_cast<int64_t>(kMaxListed - list_.size())) {
      list_.insert(list_.end(), static_cast<size_t>(count), static_cast<uint16_t>(index));
      return;
    }
    counts_.resize(buckets::kCount);
    for (const uint16_t listed : list_) ++counts_[listed];
    list_ = {};
  }
  counts_[static_cast<size_t>(index)] += count;
}

void Histogram::Add(const Histogram& other) {
  if (other.empty()) return;
  if (empty()) {
    *this = other;
    return;
  }
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ = SumOrMax(sum_, other.sum_);
  count_ += other.count_;
  for (const Bucket& bucket : other.Buckets()) AddToBucket(bucket.index, bucket.count);
}

double Histogram::mean() const {
  return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
}

std::vector<Histogram::Bucket> Histogram::Buckets() const {
  std::vector<Bucket> found;
  std::vector<uint16_t> sorted = list_;
  std::sort(sorted.begin(), sorted.end());
  for (const uint16_t index : sorted) {
    if (found.empty() || found.back().index != index) found.push_back({index, 0});
    ++found.back().count;
  }
  for (size_t index = 0; index < counts_.size(); ++index) {
    if (counts_[index] > 0) found.push_back({static_cast<int>(index), counts_[index]});
  }
  return found;
}

int64_t Histogram::ValueAt(double quantile) const {
  if (empty()) return 0;
  // The next lower number makes a product such as 0.07 * 100, which is a little above 7, give rank
  // 7.
  const double part = std::nextafter(std::clamp(quantile, 0.0, 1.0), -1.0);
  const double exact = std::ceil(part * static_cast<double>(count_));
  int64_t rank = exact >= static_cast<double>(count_) ? count_ : static_cast<int64_t>(exact);
  rank = std::max<int64_t>(rank, 1);
  if (counts_.empty()) {
    std::vector<uint16_t> indices = list_;
    const auto nth = indices.begin() + (rank - 1);
    std::nth_element(indices.begin(), nth, indices.end());
    return std::min(buckets::HighestOf(*nth), max_);
  }
  for (const Bucket& bucket : Buckets()) {
    rank -= bucket.count;
    if (rank <= 0) return std::min(buckets::HighestOf(bucket.index), max_);
  }
  return max_;
}

Histogram Histogram::Restore(const std::vector<Bucket>& buckets, int64_t min, int64_t max,
                             int64_t sum) {
  Histogram histogram;
  for (const Bucket& bucket : buckets) {
    histogram.count_ += bucket.count;
    histogram.AddToBucket(bucket.index, bucket.count);
  }
  histogram.min_ = min;
  histogram.max_ = max;
  histogram.sum_ = sum;
  return histogram;
}

}  // namespace castor::load
