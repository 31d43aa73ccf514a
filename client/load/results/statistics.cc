#include "client/load/results/statistics.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/beta.hpp>
#include <cmath>
#include <numeric>

namespace castor::load {
namespace {

constexpr size_t kLeastBlocks = 10, kMostBlocks = 20, kBlockSeconds = 5;

// Calls visit(begin, end) for the seconds of each block. Their lengths differ by at most one.
template <typename Visit>
void ForEachBlock(size_t seconds, const Visit& visit) {
  const size_t blocks = BlocksOf(seconds);
  for (size_t i = 0; i < blocks; ++i) visit(i * seconds / blocks, (i + 1) * seconds / blocks);
}

}  // namespace

size_t BlocksOf(size_t seconds) {
  if (seconds < kLeastBlocks) return 0;
  return std::clamp(seconds / kBlockSeconds, kLeastBlocks, kMostBlocks);
}

std::vector<double> FiguresOf(const Second& sum, double seconds,
                              const std::vector<double>& quantiles) {
  std::vector<double> figures;
  for (const double quantile : quantiles) {
    figures.push_back(static_cast<double>(sum.intended.ValueAt(quantile)));
  }
  const auto counted = static_cast<double>(CountedOf(sum.outcomes));
  const auto ok = static_cast<double>(sum.outcomes[static_cast<size_t>(Outcome::kOk)]);
  figures.push_back(seconds > 0 ? static_cast<double>(sum.good) / seconds : 0);
  figures.push_back(counted > 0 ? 1 - ok / counted : 0);
  return figures;
}

std::vector<double> StandardErrors(const std::vector<Second>& seconds,
                                   const std::vector<double>& quantiles,
                                   const std::vector<double>& figures) {
  std::vector<double> errors(figures.size());  // the sums of squares, at first
  ForEachBlock(seconds.size(), [&](size_t begin, size_t end) {
    Second block;
    for (size_t i = begin; i < end; ++i) block.Add(seconds[i]);
    const auto own = FiguresOf(block, static_cast<double>(end - begin), quantiles);
    for (size_t i = 0; i < own.size(); ++i) {
      errors[i] += (own[i] - figures[i]) * (own[i] - figures[i]);
    }
  });
  const auto blocks = static_cast<double>(BlocksOf(seconds.size()));
  for (double& error : errors) error = std::sqrt(error / (blocks - 1) / blocks);
  return errors;
}

double StudentQuantile(double confidence, double degrees) {
  return boost::math::quantile(boost::math::students_t(degrees), (1 + confidence) / 2);
}

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
  if (BlocksOf(values.size()) == 0) return result;

  std::vector<double> means;
  ForEachBlock(values.size(), [&](size_t begin, size_t end) {
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += values[i];
    means.push_back(sum / static_cast<double>(end - begin));
  });
  const auto count = static_cast<double>(means.size());
  const double mean = std::accumulate(means.begin(), means.end(), 0.0) / count;
  double xx = 0, xy = 0;  // x from -0.5 to 0.5 over the run, so that the slope is the growth
  const auto x = [&](size_t i) { return (static_cast<double>(i) + 0.5) / count - 0.5; };
  for (size_t i = 0; i < means.size(); ++i) {
    xx += x(i) * x(i);
    xy += x(i) * (means[i] - mean);
  }
  result.growth = xy / xx;
  double squares = 0;  // of the residuals
  for (size_t i = 0; i < means.size(); ++i) {
    const double residual = means[i] - mean - result.growth * x(i);
    squares += residual * residual;
  }
  const double error = std::sqrt(squares / (count - 2) / xx);
  const boost::math::students_t distribution(count - 2);
  result.at_least = result.growth - boost::math::quantile(distribution, confidence) * error;
  result.known = true;
  return result;
}

}  // namespace castor::load
