#include "client/load/sizing/service_times.h"

#include <algorithm>
#include <numeric>

namespace castor::load {
namespace {

constexpr size_t kValues = 1 << 16;

// Of the i-th value.
double Middle(size_t i) { return (static_cast<double>(i) + 0.5) / kValues; }

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

ServiceTimes::ServiceTimes(const Histogram& measured) {
  values_.reserve(kValues);
  const auto count = static_cast<double>(measured.count());
  double below = 0;  // of the measured ones
  measured.ForEach([&](int64_t lowest, int64_t highest, int64_t in_bucket) {
    const double middle = (static_cast<double>(lowest) + static_cast<double>(highest)) / 2e9;
    below += static_cast<double>(in_bucket);
    while (values_.size() < kValues && Middle(values_.size()) * count < below) {
      values_.push_back(middle);
    }
  });
  values_.resize(kValues, static_cast<double>(measured.max()) / 1e9);
  mean_ = Mean(values_);
}

ServiceTimes::ServiceTimes(const std::function<double(double)>& quantile) {
  values_.reserve(kValues);
  for (size_t i = 0; i < kValues; ++i) values_.push_back(quantile(Middle(i)));
  mean_ = Mean(values_);
}

double ServiceTimes::Quantile(double quantile) const {
  const auto at = static_cast<int64_t>(quantile * kValues);
  return values_[static_cast<size_t>(std::clamp<int64_t>(at, 0, kValues - 1))];
}

}  // namespace castor::load
