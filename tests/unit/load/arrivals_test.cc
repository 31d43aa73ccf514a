#include "client/load/schedule/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "tests/unit/load/distributions.h"
#include "tests/unit/load/seeds.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kSeconds = 60;
constexpr double kLeast = 1e-6;  // gap that is looked at, in mean gaps

struct Shape {
  const char* name;
  Rate rate;
};

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {"flat", FlatRate{1000}},
      {"ramp up", RampRate{0, 2000}},
      {"ramp down", RampRate{2000, 100}},
      {"steps", StepRate{{500, 0, 3000, 1000}}},
      {"sine", SineRate{1000, 600, seconds(17)}},
      {"sine down to 0", SineRate{1000, 1000, milliseconds(700)}},
      {"bursts", BurstRate{200, 5000, milliseconds(900), seconds(7)}},
      {"bursts and silence", BurstRate{0, 5000, milliseconds(900), seconds(7)}}};
  return shapes;
}

std::vector<double> Draw(const OpenLoop& load, double warm_up, uint64_t seed) {
  Arrivals arrivals(load, kSeconds, warm_up, seed);
  std::vector<double> times;
  for (double time = 0; arrivals.Next(&time);) times.push_back(time);
  return times;
}

// Sums `At` in small steps: what DueBy must be, slowly.
TEST(RateCurve, DueByIsTheIntegralOfAt) {
  for (const auto& [name, rate] : Shapes()) {
    const RateCurve curve(rate, kSeconds);
    constexpr int kSteps = 600'000;
    const double width = kSeconds / kSteps;
    double sum = 0;
    for (int i = 0; i < kSteps; ++i) {
      ASSERT_NEAR(curve.DueBy(i * width), sum, 1e-6 * curve.total() + 1) << name << " at " << i;
      sum += curve.At((i + 0.5) * width) * width;
    }
    EXPECT_NEAR(curve.total(), sum, 1e-6 * sum + 1) << name;
  }
}

TEST(RateCurve, TimeOfIsTheInverse) {
  std::mt19937_64 random(FreshSeed());
  for (const auto& [name, rate] : Shapes()) {
    const RateCurve curve(rate, kSeconds);
    std::uniform_real_distribution<double> draw(0, curve.total());
    for (int i = 0; i < 20'000; ++i) {
      const double due = draw(random);
      const double time = curve.TimeOf(due);
      ASSERT_GE(time, 0) << name;
      ASSERT_LE(time, kSeconds) << name;
      ASSERT_NEAR(curve.DueBy(time), due, 1e-7) << name;
    }
    EXPECT_NEAR(curve.TimeOf(0), 0, 1e-6) << name;
  }
}

TEST(RateCurve, NothingIsDueWhileTheRateIs0) {
  const RateCurve steps(StepRate{{0, 10, 0, 20}}, kSeconds);
  EXPECT_EQ(steps.TimeOf(0), 15);
  EXPECT_EQ(steps.TimeOf(150), 45);
  const RateCurve bursts(BurstRate{0, 10, seconds(2), seconds(6)}, kSeconds);
  EXPECT_EQ(bursts.TimeOf(20), 6);
}

// Rescaled by the rate, the gaps of every shape are those of the process at rate 1. The
// smallest gaps, of which bursty processes have many, are lost in rounding, and only counted.
TEST(Arrivals, GapsHaveTheProcesssDistribution) {
  const uint64_t seed = FreshSeed();
  for (const auto& [name, rate] : Shapes()) {
    for (const double burstiness : {0.0, 0.5, 1.0, 3.0}) {  // 0: Poisson
      OpenLoop load = {.process = burstiness == 0 ? Process::kPoisson : Process::kGamma,
                       .burstiness = burstiness == 0 ? 1 : burstiness,
                       .rate = rate};
      const RateCurve curve(rate, kSeconds);
      const std::vector<double> times = Draw(load, 0, seed);
      std::vector<double> gaps;
      double lost = 0, kept = 0;
      for (size_t i = 1; i < times.size(); ++i) {
        ASSERT_LE(times[i - 1], times[i]) << name;
        const double gap = curve.DueBy(times[i]) - curve.DueBy(times[i - 1]);
        ++(gap < kLeast ? lost : kept);
        if (gap >= kLeast) gaps.push_back(gap);
      }
      ASSERT_GT(gaps.size(), 5000U) << name;
      const double shape = 1 / (load.burstiness * load.burstiness);
      const double below = GammaDistribution(shape, kLeast);
      const auto distribution = [&](double x) {
        return (GammaDistribution(shape, x) - below) / (1 - below);
      };
      EXPECT_LT(KolmogorovSmirnov(gaps, distribution), kKolmogorovSmirnovLimit)
          << name << ", burstiness " << burstiness;
      EXPECT_NEAR(lost, below * (lost + kept), 6 * std::sqrt(below * (lost + kept)) + 10)
          << name << ", burstiness " << burstiness;
      // The wrong process is seen.
      EXPECT_GT(KolmogorovSmirnov(gaps, [](double x) { return GammaDistribution(2.25, x); }),
                kKolmogorovSmirnovLimit)
          << name << ", burstiness " << burstiness;
    }
  }
}

// Within 6 standard deviations of the expected number; a renewal process's variance is its mean
// times the squared coefficient of variation.
TEST(Arrivals, AreAsManyAsTheRateSays) {
  const uint64_t seed = FreshSeed();
  for (const auto& [name, rate] : Shapes()) {
    for (const double burstiness : {0.5, 1.0, 3.0}) {
      const OpenLoop load = {.process = Process::kGamma, .burstiness = burstiness, .rate = rate};
      const double expected = RateCurve(rate, kSeconds).total();
      EXPECT_NEAR(static_cast<double>(Draw(load, 0, seed).size()), expected,
                  6 * burstiness * std::sqrt(expected) + 10)
          << name;
    }
  }
}

TEST(Arrivals, ConstantOnesAreEvenlySpaced) {
  const OpenLoop load = {.process = Process::kConstant, .rate = FlatRate{250}};
  const std::vector<double> times = Draw(load, 2, 1);
  ASSERT_EQ(times.size(), 62U * 250);
  for (size_t i = 0; i < times.size(); ++i) {
    ASSERT_NEAR(times[i], -2 + static_cast<double>(i) / 250, 1e-12);
  }
  EXPECT_EQ(times[500], 0);
}

TEST(Arrivals, ConstantOnesFollowTheRate) {
  const OpenLoop load = {.process = Process::kConstant, .rate = StepRate{{100, 0, 200}}};
  int first = 0, second = 0, third = 0;
  for (const double time : Draw(load, 0, 1)) {
    ++(time < 20 ? first : time < 39.999 ? second : third);
  }
  EXPECT_EQ(first, 2000);
  EXPECT_EQ(second, 0);
  EXPECT_EQ(third, 4000);
}

TEST(Arrivals, WarmUpHasTheRateOfTheBegin) {
  const uint64_t seed = FreshSeed();
  const OpenLoop load = {.rate = RampRate{1000, 5000}};
  const std::vector<double> times = Draw(load, 10, seed);
  double before = 0;
  std::vector<double> gaps;
  for (size_t i = 1; i < times.size() && times[i] < 0; ++i) {
    ASSERT_GE(times[i - 1], -10);
    gaps.push_back((times[i] - times[i - 1]) * 1000);
    ++before;
  }
  EXPECT_NEAR(before, 10'000, 6 * 100);
  EXPECT_LT(KolmogorovSmirnov(gaps, ExponentialDistribution), kKolmogorovSmirnovLimit);
}

}  // namespace
}  // namespace castor::load
