#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "client/load/statistics/bootstrap.h"
#include "client/load/statistics/quantile_interval.h"
#include "client/load/statistics/rank_test.h"
#include "client/load/statistics/slope.h"
#include "tests/support/seeded.h"

namespace castor::load {
namespace {

class StatisticsTest : public ::testing::Test, protected Seeded {
 protected:
  double Normal() { return std::normal_distribution<double>()(random_); }

  // Of standard deviation 1, each value hanging together with the one before.
  std::vector<double> Wandering(int n, double correlation) {
    std::vector<double> values;
    double level = Normal();
    for (int i = 0; i < n; ++i) {
      level = correlation * level + std::sqrt(1 - correlation * correlation) * Normal();
      values.push_back(level);
    }
    return values;
  }
};

TEST_F(StatisticsTest, GrowthIsThatOfALine) {
  std::vector<double> values;
  for (int i = 0; i < 100; ++i) values.push_back(7 + 0.5 * i);
  const Growth growth = GrowthOf(values, 0.99);
  EXPECT_NEAR(growth.mean, 7 + 0.5 * 49.5, 1e-9);
  EXPECT_NEAR(growth.growth, 50, 1e-9);
  EXPECT_NEAR(growth.at_least, 50, 1e-6) << "a line has no error";
  EXPECT_EQ(growth.blocks, 20u);
  EXPECT_EQ(GrowthOf({1, 2, 3, 4, 5, 6, 7, 8, 9}, 0.99).blocks, 0u) << "too short to tell";
  EXPECT_EQ(GrowthOf({}, 0.99).blocks, 0u);
}

TEST_F(StatisticsTest, SeriesThatWanderSeldomSeemToGrow) {
  int alarms = 0;
  constexpr int kRuns = 400;
  for (int i = 0; i < kRuns; ++i) {
    const int n = 60 * UpTo(5);
    alarms += GrowthOf(Wandering(n, 0.6), 0.99).at_least > 0;
  }
  EXPECT_LE(alarms, kRuns / 20) << "1 % are wanted, and 5 % more than chance";
}

TEST_F(StatisticsTest, GrowthIsFoundInSeriesThatWander) {
  int found = 0;
  for (int i = 0; i < 100; ++i) {
    std::vector<double> values = Wandering(120, 0.6);
    for (size_t k = 0; k < values.size(); ++k) values[k] += 4 * static_cast<double>(k) / 120;
    found += GrowthOf(values, 0.99).at_least > 0;
  }
  EXPECT_GE(found, 90);
}

// By comparing every pair.
double PairsAbove(const std::vector<double>& a, const std::vector<double>& b) {
  double above = 0;
  for (const double x : a) {
    for (const double y : b) above += y > x ? 1 : y == x ? 0.5 : 0;
  }
  return above / static_cast<double>(a.size() * b.size());
}

TEST_F(StatisticsTest, RankTestCountsPairs) {
  for (int i = 0; i < 50; ++i) {
    std::vector<double> a, b;
    for (int k = UpTo(40); k > 0; --k) a.push_back(UpTo(12));
    for (int k = UpTo(40); k > 0; --k) b.push_back(UpTo(12) + 1);
    EXPECT_NEAR(MannWhitney(a, b).b_above_a, PairsAbove(a, b), 1e-12);
    EXPECT_NEAR(MannWhitney(a, b).p_value, MannWhitney(b, a).p_value, 1e-9);
  }
}

TEST_F(StatisticsTest, RankTestAgreesWithSciPy) {
  // scipy.stats.mannwhitneyu(a, b, method="asymptotic") of SciPy 1.17.1.
  const std::vector<double> a = {1, 2, 2, 3, 5, 8, 13}, b = {2, 4, 5, 9, 14, 14};
  const RankTest test = MannWhitney(a, b);
  EXPECT_DOUBLE_EQ(test.b_above_a, 1 - 11.5 / 42);
  EXPECT_NEAR(test.p_value, 0.19482267881995718, 1e-12);
}

TEST_F(StatisticsTest, RankTestIsCalibratedForIndependentValues) {
  int alarms = 0, found = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<double> a, b, shifted;
    for (int k = 0; k < 30; ++k) {
      a.push_back(std::round(4 * Normal()));  // with ties
      b.push_back(std::round(4 * Normal()));
      shifted.push_back(std::round(4 * Normal()) + 4);
    }
    alarms += MannWhitney(a, b).p_value < 0.05;
    found += MannWhitney(a, shifted).p_value < 0.05;
  }
  EXPECT_LE(alarms, 50) << "25 are expected, with a standard deviation of 5";
  EXPECT_GE(alarms, 5);
  EXPECT_GE(found, 450);
}

TEST_F(StatisticsTest, RankTestOfHistogramsIsThatOfTheirValues) {
  Histogram a, b;
  std::vector<double> values_a, values_b;
  for (int i = 0; i < 300; ++i) {
    // Each value is one bucket.
    const int64_t x = UpTo(50), y = UpTo(60);
    a.Record(x * 512);
    values_a.push_back(static_cast<double>(x));
    b.Record(y * 512);
    values_b.push_back(static_cast<double>(y));
  }
  EXPECT_NEAR(MannWhitney(a, b).b_above_a, MannWhitney(values_a, values_b).b_above_a, 1e-12);
  EXPECT_NEAR(MannWhitney(a, b).p_value, MannWhitney(values_a, values_b).p_value, 1e-12);
  EXPECT_EQ(MannWhitney(Histogram(), b).p_value, 1);
  EXPECT_EQ(MannWhitney({1, 1}, {1, 1, 1}).p_value, 1) << "all are equal";
}

TEST_F(StatisticsTest, QuantileIntervalsHoldTheQuantileAsOftenAsTheySay) {
  int held = 0;
  for (int i = 0; i < 300; ++i) {
    Histogram histogram;
    std::exponential_distribution<double> latency(1);
    for (int k = 0; k < 1000; ++k) {
      histogram.Record(static_cast<int64_t>(1e9 * latency(random_)));
    }
    const Interval interval = QuantileInterval(histogram, 0.95, 0.9);
    const double exact = -1e9 * std::log(0.05);
    held += interval.low <= exact * 1.001 && exact <= interval.high * 1.001;
  }
  EXPECT_GE(held, 250) << "270 are wanted, with a standard deviation of 5";
  EXPECT_LE(held, 292);
  EXPECT_EQ(QuantileInterval(Histogram(), 0.9, 0.9).high, 0);
  Histogram few;
  few.Record(1000);
  few.Record(5'000'000);
  EXPECT_EQ(QuantileInterval(few, 0.99, 0.99).high, 5'000'000);
}

TEST_F(StatisticsTest, ResamplesFollowThoseMadeValueByValue) {
  // Twin: the mean of a resample's quantile must be near that of sorted values drawn in the same
  // way, and its figures must be those of whole seconds.
  std::vector<Histogram> histograms(20);
  std::vector<SecondFigures> seconds;
  int64_t n = 0;
  for (Histogram& histogram : histograms) {
    for (int k = UpTo(300); k > 0; --k, ++n) {
      histogram.Record(static_cast<int64_t>(1e6 * std::exp(2 * Normal())));
    }
    seconds.push_back({.latency = &histogram, .good = 7, .counted = 10, .errors = 3});
  }
  // One second alone: every resample is that second.
  const auto alone = Resample({seconds[0]}, {0.5, 0.99}, 10, 1);
  for (const Figures& figures : alone) {
    for (size_t q = 0; q < 2; ++q) {
      EXPECT_NEAR(figures.quantiles[q],
                  static_cast<double>(histograms[0].ValueAt(q == 0 ? 0.5 : 0.99)),
                  1e-3 * figures.quantiles[q] + 512);
    }
  }
  const auto resampled = Resample(seconds, {0.5, 0.9}, 400, 1);
  EXPECT_EQ(resampled.size(), 400u);
  for (const Figures& figures : resampled) {
    EXPECT_EQ(figures.good, 7);
    EXPECT_EQ(figures.error_share, 0.3);
    EXPECT_LT(figures.quantiles[0], figures.quantiles[1]);
  }
  const auto again = Resample(seconds, {0.5, 0.9}, 400, 1),
             other = Resample(seconds, {0.5, 0.9}, 400, 2);
  const auto medians = [](const std::vector<Figures>& all) {
    std::vector<double> values;
    for (const Figures& figures : all) values.push_back(figures.quantiles[0]);
    return values;
  };
  EXPECT_EQ(medians(resampled), medians(again)) << "one seed, one result";
  EXPECT_NE(medians(resampled), medians(other));
}

TEST_F(StatisticsTest, ResamplesSpreadAsMeansOfBlocksDo) {
  // Seconds that do not hang together: the spread of the mean is known.
  std::vector<Histogram> histograms(200);
  std::vector<SecondFigures> seconds;
  double squares = 0, sum = 0;
  for (Histogram& histogram : histograms) {
    const int64_t good = Uniform(0, 100);
    sum += static_cast<double>(good);
    squares += static_cast<double>(good * good);
    seconds.push_back({.latency = &histogram, .good = good});
  }
  const double mean = sum / 200, deviation = std::sqrt((squares / 200 - mean * mean) / 200);
  double resampled_squares = 0, resampled_sum = 0;
  for (const Figures& figures : Resample(seconds, {0.5}, 2000, 1)) {
    resampled_sum += figures.good;
    resampled_squares += (figures.good - mean) * (figures.good - mean);
    EXPECT_EQ(figures.quantiles[0], 0) << "no answers at all";
  }
  EXPECT_NEAR(resampled_sum / 2000, mean, 0.3);
  // Blocks of a given series spread by chance a little more or less than its seconds do.
  EXPECT_NEAR(std::sqrt(resampled_squares / 2000) / deviation, 1, 0.45);
}

TEST_F(StatisticsTest, IntervalsAreWiderTheFewerBlocksThereAre) {
  std::vector<double> values(1001);
  std::iota(values.begin(), values.end(), -500);
  const Interval many = SpreadInterval(0, values, 0.9, 1e6),
                 few = SpreadInterval(0, values, 0.9, 6);
  EXPECT_NEAR(many.low, -450, 2);
  EXPECT_NEAR(many.high, 450, 2);
  EXPECT_NEAR(few.high, 450 * 2.132 / 1.645 * std::sqrt(6.0 / 4), 3);
  EXPECT_EQ(SpreadInterval(7, {7, 7, 7}, 0.9, 10).low, 7);
}

}  // namespace
}  // namespace castor::load
