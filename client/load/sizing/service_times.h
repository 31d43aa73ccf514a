// How long requests take on a server that does nothing else: a distribution to draw from, at the
// cost of reading one array element.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "client/load/measure/histogram.h"

namespace castor::load {

// 65,536 equally likely durations in seconds, in rising order. Immutable.
class ServiceTimes {
 public:
  // Requires a histogram that is not empty.
  explicit ServiceTimes(const Histogram& measured);
  // `quantile` maps 0..1 to seconds.
  explicit ServiceTimes(const std::function<double(double)>& quantile);

  double Draw(uint64_t random) const { return values_[random >> 48]; }  // seconds
  double mean() const { return mean_; }
  double Quantile(double quantile) const;

 private:
  std::vector<double> values_;
  double mean_ = 0;
};

}  // namespace castor::load
