#include "client/top/histogram.h"

#include <cmath>
#include <iterator>

namespace castor::top {

void Histogram::Add(double bound, double count) {
  if (std::isnan(bound) || !std::isfinite(count) || count < 0) return;
  counts_[bound] += count;  // an empty bucket too: it says where the next one starts
  count_ += count;
}

void Histogram::Add(const Histogram& other) {
  for (const auto& [bound, count] : other.counts_) Add(bound, count);
}

std::optional<double> Histogram::Quantile(double quantile) const {
  if (count_ <= 0) return std::nullopt;
  const double rank = quantile * count_;
  double below = 0, start = 0;
  for (auto bucket = counts_.begin(); bucket != counts_.end(); ++bucket) {
    const auto& [bound, count] = *bucket;
    if (below + count >= rank && count > 0) {
      if (std::isinf(bound)) return start;
      if (bound <= 0) return bound;
      return start + (bound - start) * (rank - below) / count;
    }
    below += count;
    start = bound;
  }
  return std::isinf(start) ? std::nullopt : std::optional<double>(start);  // of rounding
}

bool Histogram::IsBeyond(double quantile) const {
  if (count_ <= 0) return false;
  const auto last = std::prev(counts_.end());
  return std::isinf(last->first) && last->second > 0 && count_ - last->second < quantile * count_;
}

}  // namespace castor::top
