#include "client/load/statistics/bootstrap.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <map>

namespace castor::load {
namespace {

// SplitMix64: the standard library's distributions differ between implementations.
class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}

  // Below `bound`. REQUIRES: 0 < bound < 2^32.
  size_t Below(size_t bound) {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return static_cast<size_t>(((z >> 32) * bound) >> 32);
  }

 private:
  uint64_t state_;
};

// The seconds' counts, laid out so that a quantile of a weighted sum of seconds costs little:
// buckets are in groups, a quantile's group is found from the seconds' counts by group, and only
// that group's buckets are then added up.
class QuantileTable {
 public:
  explicit QuantileTable(const std::vector<SecondFigures>& seconds);

  // Of the sum of all seconds, each as often as `weights` says.
  std::vector<double> QuantilesOf(const std::vector<double>& weights,
                                  const std::vector<double>& quantiles);

 private:
  static constexpr size_t kGroup = 64;

  struct Entry {
    uint32_t second, slot;
    double count;
  };

  double ValueIn(size_t group, double rank, const std::vector<double>& weights);

  std::vector<double> values_;               // of the buckets that occur, ascending
  std::vector<std::vector<Entry>> entries_;  // by group
  std::vector<double> coarse_;               // [second][group]
  std::vector<double> totals_, slots_;       // scratch: by group; by bucket of one group
};

QuantileTable::QuantileTable(const std::vector<SecondFigures>& seconds) {
  std::vector<std::vector<Histogram::Bucket>> all;
  std::map<int, size_t> place;
  for (const SecondFigures& second : seconds) {
    all.push_back(second.latency->Buckets());
    for (const Histogram::Bucket& bucket : all.back()) place[bucket.index] = 0;
  }
  for (auto& [index, at] : place) {
    at = values_.size();
    values_.push_back(static_cast<double>(buckets::HighestOf(index)));
  }
  const size_t groups = (values_.size() + kGroup - 1) / kGroup;
  entries_.resize(groups);
  coarse_.resize(groups * seconds.size());
  for (size_t second = 0; second < all.size(); ++second) {
    for (const Histogram::Bucket& bucket : all[second]) {
      const size_t at = place[bucket.index];
      const auto count = static_cast<double>(bucket.count);
      entries_[at / kGroup].push_back(
          {static_cast<uint32_t>(second), static_cast<uint32_t>(at % kGroup), count});
      coarse_[second * groups + at / kGroup] += count;
    }
  }
}

std::vector<double> QuantileTable::QuantilesOf(const std::vector<double>& weights,
                                               const std::vector<double>& quantiles) {
  const size_t groups = entries_.size();
  totals_.assign(groups, 0);
  for (size_t second = 0; second < weights.size(); ++second) {
    if (weights[second] == 0) continue;
    const double* const row = coarse_.data() + second * groups;
    for (size_t g = 0; g < groups; ++g) totals_[g] += weights[second] * row[g];
  }
  double count = 0;
  for (const double total : totals_) count += total;

  std::vector<double> found;
  for (const double quantile : quantiles) {
    if (count == 0) {
      found.push_back(0);
      continue;
    }
    double rank = std::max(1.0, std::ceil(std::nextafter(quantile, -1.0) * count));
    size_t group = 0;
    while (group + 1 < groups && rank > totals_[group]) rank -= totals_[group++];
    found.push_back(ValueIn(group, rank, weights));
  }
  return found;
}

double QuantileTable::ValueIn(size_t group, double rank, const std::vector<double>& weights) {
  slots_.assign(kGroup, 0);
  for (const Entry& entry : entries_[group]) {
    slots_[entry.slot] += weights[entry.second] * entry.count;
  }
  size_t slot = 0;
  const size_t last = std::min(kGroup, values_.size() - group * kGroup) - 1;
  while (slot < last && rank > slots_[slot]) rank -= slots_[slot++];
  return values_[group * kGroup + slot];
}

}  // namespace

size_t BlockSeconds(size_t seconds) {
  const double length = std::ceil(1.75 * std::cbrt(static_cast<double>(seconds)));
  return std::clamp<size_t>(static_cast<size_t>(length), 1, std::max<size_t>(seconds, 1));
}

std::vector<Figures> Resample(const std::vector<SecondFigures>& seconds,
                              const std::vector<double>& quantiles, int resamples, uint64_t seed) {
  const size_t n = seconds.size(), block = BlockSeconds(n);
  QuantileTable table(seconds);
  Draws draws(seed);
  std::vector<Figures> figures;
  std::vector<double> weights(n);
  for (int r = 0; r < resamples; ++r) {
    weights.assign(n, 0);
    for (size_t drawn = 0; drawn < n;) {
      // The run's end is followed by its begin, so that every second is drawn as often.
      const size_t start = draws.Below(n);
      for (size_t i = 0; i < block && drawn < n; ++i, ++drawn) weights[(start + i) % n] += 1;
    }
    double good = 0, counted = 0, errors = 0;
    for (size_t i = 0; i < n; ++i) {
      good += weights[i] * static_cast<double>(seconds[i].good);
      counted += weights[i] * static_cast<double>(seconds[i].counted);
      errors += weights[i] * static_cast<double>(seconds[i].errors);
    }
    figures.push_back({.quantiles = table.QuantilesOf(weights, quantiles),
                       .good = good / static_cast<double>(n),
                       .error_share = counted > 0 ? errors / counted : 0});
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

}  // namespace castor::load
