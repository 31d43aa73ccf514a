// How far a percentile of a run may lie from the server's own, for showing beside it.
#pragma once

#include <cstdint>

#include "client/load/measure/histogram.h"

namespace castor::load {

struct Interval {
  double low = 0, high = 0;
};

// The values between which the quantile lies with the confidence, from the ranks that a binomial
// count of values below it takes, in ns. It takes answers as independent, and so is too narrow
// where they hang together; comparisons use bootstrap.h instead. {0, 0} when empty; `high` is the
// histogram's max where so few values cannot bound the quantile. REQUIRES: 0 < quantile < 1,
// 0 < confidence < 1.
Interval QuantileInterval(const Histogram& histogram, double quantile, double confidence);

}  // namespace castor::load
