#include "client/load/statistics/quantile_interval.h"

#include <boost/math/distributions/binomial.hpp>
#include <cmath>

namespace castor::load {

Interval QuantileInterval(const Histogram& histogram, double quantile, double confidence) {
  if (histogram.empty()) return {};
  // Outwards to whole ranks, so that the confidence is at least what was asked for.
  using OutwardPolicy = boost::math::policies::policy<
      boost::math::policies::discrete_quantile<boost::math::policies::integer_round_outwards>>;
  const boost::math::binomial_distribution<double, OutwardPolicy> below(
      static_cast<double>(histogram.count()), quantile);
  const double beyond = (1 - confidence) / 2;
  const double least = boost::math::quantile(below, beyond);
  const double greatest = boost::math::quantile(boost::math::complement(below, beyond)) + 1;
  return {static_cast<double>(histogram.ValueAtRank(std::llround(least))),
          static_cast<double>(histogram.ValueAtRank(std::llround(greatest)))};
}

}  // namespace castor::load
