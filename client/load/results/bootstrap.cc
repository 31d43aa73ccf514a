#include "client/load/results/bootstrap.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/beta.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "client/load/workload/schedule.h"

namespace castor::load {
namespace {

// Quantiles of weighted sums of seconds.
class QuantileTable {
 public:
  explicit QuantileTable(const std::vector<Second>& seconds) {
    std::map<int, size_t> place;
    for (const Second& second : seconds) {
      for (const Histogram::Bucket& bucket : second.intended.Buckets()) place[bucket.index] = 0;
    }
    for (auto& [index, at] : place) {
      at = values_.size();
      values_.push_back(static_cast<double>(buckets::HighestOf(index)));
    }
    for (const Second& second : seconds) {
      auto& entries = entries_.emplace_back();
      for (const Histogram::Bucket& bucket : second.intended.Buckets()) {
        entries.emplace_back(place[bucket.index], static_cast<double>(bucket.count));
      }
    }
  }

  // Of the sum of all seconds, each as often as `weights` says; 0 if there is nothing.
  std::vector<double> QuantilesOf(const std::vector<double>& weights,
                                  const std::vector<double>& quantiles) {
    counts_.assign(values_.size(), 0);
    double count = 0;
    for (size_t second = 0; second < weights.size(); ++second) {
      if (weights[second] == 0) continue;
      for (const auto& [at, times] : entries_[second]) {
        counts_[at] += weights[second] * times;
        count += weights[second] * times;
      }
    }
    std::vector<double> found;
    for (const double quantile : quantiles) {
      double rank = std::max(1.0, std::ceil(std::nextafter(quantile, -1.0) * count));
      size_t at = 0;
      while (at + 1 < counts_.size() && rank > counts_[at]) rank -= counts_[at++];
      found.push_back(count > 0 ? values_[at] : 0);
    }
    return found;
  }

 private:
  std::vector<double> values_;  // of the buckets that occur, ascending
  std::vector<std::vector<std::pair<size_t, double>>> entries_;  // by second: bucket, count
  std::vector<double> counts_;                                   // scratch: by bucket
};

}  // namespace

size_t BlockSeconds(size_t seconds) {
  const double length = std::ceil(1.75 * std::cbrt(static_cast<double>(seconds)));
  return std::clamp<size_t>(static_cast<size_t>(length), 1, std::max<size_t>(seconds, 1));
}

std::vector<std::vector<double>> Resample(const std::vector<Second>& seconds,
                                          const std::vector<double>& quantiles, int resamples,
                                          uint64_t seed) {
  const size_t n = seconds.size(), block = BlockSeconds(n);
  constexpr auto kOk = static_cast<size_t>(Outcome::kOk);
  QuantileTable table(seconds);
  Random random(seed);
  std::vector<std::vector<double>> figures;
  std::vector<double> weights(n);
  for (int r = 0; r < resamples; ++r) {
    weights.assign(n, 0);
    for (size_t drawn = 0; drawn < n;) {
      // The run's end is followed by its begin, so that every second is drawn as often.
      const size_t start = Below(n, random);
      for (size_t i = 0; i < block && drawn < n; ++i, ++drawn) weights[(start + i) % n] += 1;
    }
    double good = 0, counted = 0, ok = 0;
    for (size_t i = 0; i < n; ++i) {
      good += weights[i] * static_cast<double>(seconds[i].good);
      counted += weights[i] * static_cast<double>(CountedOf(seconds[i].outcomes));
      ok += weights[i] * static_cast<double>(seconds[i].outcomes[kOk]);
    }
    figures.push_back(table.QuantilesOf(weights, quantiles));
    figures.back().push_back(good / static_cast<double>(n));
    figures.back().push_back(counted > 0 ? 1 - ok / counted : 0);
  }
  return figures;
}

Interval SpreadInterval(double point, std::vector<double> resampled, double confidence,
                        double blocks) {
  std::sort(resampled.begin(), resampled.end());
  const double beyond = (1 - confidence) / 2;
  const auto last = static_cast<double>(resampled.size() - 1);
  const double low = resampled[static_cast<size_t>(std::floor(beyond * last))];
  const double high = resampled[static_cast<size_t>(std::ceil((1 - beyond) * last))];

  const double degrees = std::max(1.0, blocks - 2);
  const double student = boost::math::quantile(boost::math::students_t(degrees), 1 - beyond) /
                         boost::math::quantile(boost::math::normal(), 1 - beyond);
  const double wider = student * std::sqrt((degrees + 2) / degrees);
  return {point - wider * std::max(0.0, point - low), point + wider * std::max(0.0, high - point)};
}

namespace {

constexpr size_t kLeastBlocks = 10, kMostBlocks = 20, kBlockSeconds = 5;

// The mean of each block. Block lengths differ by at most one second.
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
