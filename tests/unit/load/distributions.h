// What the tests of drawn values compare with.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace castor::load {

// Kolmogorov and Smirnov's statistic times the root of the sample's size. It is above 3.3 for one
// sample in a billion that does come from `distribution`.
inline double KolmogorovSmirnov(std::vector<double> sample,
                                const std::function<double(double)>& distribution) {
  std::sort(sample.begin(), sample.end());
  const auto count = static_cast<double>(sample.size());
  double distance = 0;
  for (size_t i = 0; i < sample.size(); ++i) {
    const double value = distribution(sample[i]);
    distance = std::max({distance, value - static_cast<double>(i) / count,
                         static_cast<double>(i + 1) / count - value});
  }
  return distance * std::sqrt(count);
}

inline constexpr double kKolmogorovSmirnovLimit = 3.3;

inline double ExponentialDistribution(double x) { return -std::expm1(-x); }

// Of a gamma distribution with this shape and mean 1: the series of the incomplete gamma function.
inline double GammaDistribution(double shape, double x) {
  const double scaled = x * shape;
  if (scaled <= 0) return 0;
  double term = std::exp(shape * std::log(scaled) - scaled - std::lgamma(shape + 1));
  double sum = 0;
  for (double n = 1; term > 1e-18 || n < scaled; ++n) {
    sum += term;
    term *= scaled / (shape + n);
  }
  return std::min(sum, 1.0);
}

}  // namespace castor::load
