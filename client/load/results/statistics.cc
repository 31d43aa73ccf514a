#include "client/load/results/statistics.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/beta.hpp>
#include <cmath>
#include <numeric>

namespace castor::load {
namespace {

constexpr size_t kLeastBlocks = 10, kMostBlocks = 20, kBlockSeconds = 5;

// Of parts of the series that are as equal as whole seconds allow.
std::vector<double> BlockMeans(const std::vector<double>& values, size_t blocks) {
  std::vector<double> means;
  for (size_t i = 0; i < blocks; ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * values.size() / blocks);
    const auto end = values.begin() + static_cast<std::ptrdiff_t>((i + 1) * values.size() / blocks);
    means.push_back(std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin));
  }
  return means;
}

}  // namespace

double ConfidenceWithin(double quantile, int64_t requests, int64_t over_limit) {
  const int64_t within = requests - over_limit;
  if (within <= 0) return 0;
  return boost::math::ibetac(static_cast<double>(within), static_cast<double>(over_limit) + 1,
                             quantile);
}

int64_t RequestsNeeded(double quantile, double confidence) {
  return static_cast<int64_t>(std::ceil(std::log(1 - confidence) / std::log(quantile)));
}

Growth GrowthOf(const std::vector<double>& values, double confidence) {
  Growth result;
  if (values.empty()) return result;
  const auto n = static_cast<double>(values.size());
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (values.size() < kLeastBlocks) return result;

  const size_t blocks = std::clamp(values.size() / kBlockSeconds, kLeastBlocks, kMostBlocks);
  const std::vector<double> means = BlockMeans(values, blocks);
  const auto count = static_cast<double>(blocks);
  const double mean = std::accumulate(means.begin(), means.end(), 0.0) / count;
  double xx = 0, xy = 0;  // x from -0.5 to 0.5 over the run, so that the slope is the growth
  const auto x = [&](size_t i) { return (static_cast<double>(i) + 0.5) / count - 0.5; };
  for (size_t i = 0; i < blocks; ++i) {
    xx += x(i) * x(i);
    xy += x(i) * (means[i] - mean);
  }
  result.growth = xy / xx;
  double squares = 0;  // of what the line leaves
  for (size_t i = 0; i < blocks; ++i) {
    const double left = means[i] - mean - result.growth * x(i);
    squares += left * left;
  }
  const double error = std::sqrt(squares / (count - 2) / xx);
  const boost::math::students_t distribution(count - 2);
  result.at_least = result.growth - boost::math::quantile(distribution, confidence) * error;
  result.known = true;
  return result;
}

}  // namespace castor::load
