#include "client/load/judge/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "tests/support/sanitizer.h"
#include "tests/support/seeded.h"
#include "tests/unit/load/made_run.h"

namespace castor::load {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CompareTest : public ::testing::Test, protected Seeded {
 protected:
  static const Change& Find(const Comparison& comparison, const std::string& metric,
                            size_t cls = 0) {
    for (const Change& change : comparison.classes.at(cls).changes) {
      if (change.metric == metric) return change;
    }
    throw std::runtime_error("no " + metric);
  }

  // The share of pairs of runs in which a figure has this trend; `slower` is of the second run. The
  // few pairs of a sanitizer's build say nothing of shares.
  struct Share {
    double any = 0, p50 = 0, p99 = 0;
  };
  Share ShareWith(Trend trend, double slower, int seconds) {
    constexpr int kPairs = kSanitized ? 4 : 200;
    CompareOptions options;
    options.resamples = 500;
    Share share;
    for (int i = 0; i < kPairs; ++i) {
      const Wandering before = {.seconds = seconds};
      const Wandering after = {.seconds = seconds, .median_ms = slower * before.median_ms};
      const Comparison comparison =
          Compare(WanderingRun(before, random_()), WanderingRun(after, random_()), options);
      share.any += (comparison.trend() == trend) / double{kPairs};
      share.p50 += (Find(comparison, "p50").trend == trend) / double{kPairs};
      share.p99 += (Find(comparison, "p99").trend == trend) / double{kPairs};
    }
    std::printf("x %.2f, %d s, %s: any %.3f, p50 %.3f, p99 %.3f\n", slower, seconds, NameOf(trend),
                share.any, share.p50, share.p99);
    return share;
  }
};

TEST_F(CompareTest, RunsOfOneServerSeldomDiffer) {
  for (const int seconds : {20, 60, 180}) {
    const Share share = ShareWith(Trend::kRegression, 1, seconds);
    if (kSanitized) continue;
    EXPECT_LE(share.p50, 0.05) << seconds;
    EXPECT_LE(share.p99, 0.05) << seconds;
    EXPECT_LE(share.any, 0.09) << "of any of six figures in " << seconds << " s";
  }
}

TEST_F(CompareTest, ATenthMoreIsFound) {
  // The level of a run of a minute has a standard deviation of 2.6 %; 3.7 % of the change, then.
  const Share short_runs = ShareWith(Trend::kRegression, 1.1, 60);
  const Share share = ShareWith(Trend::kRegression, 1.1, 240);
  const Share faster = ShareWith(Trend::kImprovement, 1 / 1.3, 60);
  if (kSanitized) return;
  EXPECT_GE(short_runs.p50, 0.35);
  EXPECT_GE(share.p50, 0.9);
  EXPECT_GE(share.p99, 0.7);
  EXPECT_GE(faster.p50, 0.95);
  EXPECT_GE(faster.p99, 0.9);
}

// A run that is the same each second, but for its size.
RunData Steady(double ms, int errors, int seconds = 60) {
  RunData run = EmptyRun(seconds);
  for (int second = 0; second < seconds; ++second) {
    for (int i = 1; i <= 100; ++i) {
      Count({.second = second, .latency = std::chrono::nanoseconds(std::llround(ms * 1e4 * i))},
            run);
    }
    if (errors > 0) Count({.second = second, .outcome = Outcome::kFailed}, run, errors);
  }
  return run;
}

TEST_F(CompareTest, FiguresAreThoseOfTheRuns) {
  const Comparison comparison = Compare(Steady(10, 0), Steady(12, 10));
  EXPECT_THAT(comparison.notes, IsEmpty());
  ASSERT_EQ(comparison.classes.size(), 1u);
  EXPECT_EQ(comparison.classes[0].name, "short");
  const Change& p99 = Find(comparison, "p99");
  EXPECT_NEAR(p99.a, 9.9e6, 1e4);
  EXPECT_NEAR(p99.b, 11.88e6, 1.2e4);
  EXPECT_NEAR(p99.change, 0.2, 0.003);
  EXPECT_NEAR(p99.interval.low, 0.2, 0.004) << "every second is the same";
  EXPECT_EQ(p99.trend, Trend::kRegression);
  const Change& errors = Find(comparison, "errors");
  EXPECT_NEAR(errors.change, 10.0 / 110, 1e-9) << "a difference";
  EXPECT_EQ(errors.trend, Trend::kRegression);
  const Change& goodput = Find(comparison, "goodput");
  EXPECT_EQ(goodput.a, 100);
  EXPECT_EQ(goodput.trend, Trend::kNoChange);
  EXPECT_GT(comparison.classes[0].b_slower, 0.55);
  EXPECT_LT(comparison.classes[0].p_value, 0.01);
  EXPECT_EQ(comparison.trend(), Trend::kRegression);

  const Comparison back = Compare(Steady(12, 10), Steady(10, 0));
  EXPECT_EQ(back.trend(), Trend::kImprovement);
  const CompareOptions without_tail = {.quantiles = {0.5, 0.99}};  // p99.9 takes longer runs
  EXPECT_EQ(Compare(Steady(10, 0), Steady(10, 0), without_tail).trend(), Trend::kNoChange);
}

TEST_F(CompareTest, FewerGoodAnswersAreARegression) {
  // 50 ms is the limit, so 90 ms loses two fifths.
  const Comparison comparison = Compare(Steady(50, 0), Steady(90, 0));
  EXPECT_EQ(Find(comparison, "goodput").b, 55);
  EXPECT_EQ(Find(comparison, "goodput").trend, Trend::kRegression);
}

TEST_F(CompareTest, TooFewAnswersTellNothing) {
  const Comparison comparison = Compare(Steady(10, 0, 10), Steady(20, 0, 10));
  const Change& tail = Find(comparison, "p99.9");
  EXPECT_EQ(tail.trend, Trend::kUnclear);
  EXPECT_TRUE(std::isinf(tail.interval.low) && std::isinf(tail.interval.high));
  EXPECT_EQ(Find(comparison, "p90").trend, Trend::kRegression);
  EXPECT_EQ(Find(Compare(Steady(10, 0, 4), Steady(20, 0, 4)), "p50").trend, Trend::kUnclear);
  EXPECT_EQ(Compare(EmptyRun(0), EmptyRun(0)).trend(), Trend::kUnclear);
}

TEST_F(CompareTest, NoAnswersAtAllAreARegression) {
  RunData silent = EmptyRun(60);
  for (int i = 0; i < 60; ++i) Count({.second = i, .outcome = Outcome::kFailed}, silent, 100);
  CompareOptions options;
  options.gates = {ParseGate("p99 > +5%")};
  const Comparison comparison = Compare(Steady(10, 0), silent, options);
  EXPECT_EQ(Find(comparison, "p99").trend, Trend::kRegression);
  EXPECT_TRUE(comparison.failed());
  EXPECT_EQ(Find(Compare(silent, Steady(10, 0)), "p99").trend, Trend::kUnclear);
  EXPECT_EQ(Find(Compare(silent, Steady(10, 0)), "errors").trend, Trend::kImprovement);
}

TEST_F(CompareTest, GatesFailOnWhatIsSurelyBeyond) {
  const RunData a = Steady(10, 0), b = Steady(11, 0);
  const auto evaluated = [&](const std::string& gate) {
    CompareOptions options;
    options.gates = {ParseGate(gate)};
    const Comparison comparison = Compare(a, b, options);
    EXPECT_EQ(comparison.gates.size(), 1u);
    EXPECT_EQ(comparison.failed(), comparison.gates[0].failed);
    return comparison.gates[0];
  };
  EXPECT_TRUE(evaluated("p99 > +5%").failed);
  EXPECT_THAT(evaluated("p99 > +5%").text, HasSubstr("p99 of short changed by +10."));
  EXPECT_THAT(evaluated("p99 > +5%").text, HasSubstr("beyond +5.00 %"));
  EXPECT_FALSE(evaluated("p99 > +15%").failed);
  EXPECT_THAT(evaluated("p99 > +15%").text, HasSubstr(": not beyond +15.00 %"));
  EXPECT_FALSE(evaluated("p99 < -5%").failed);
  EXPECT_TRUE(evaluated("short: p97 > 0%").failed) << "a percentile that is not among the usual";
  EXPECT_FALSE(evaluated("goodput < -1%").failed);
  EXPECT_FALSE(evaluated("p99.99 > 1%").failed);
  EXPECT_THAT(evaluated("p99.99 > 1%").text, HasSubstr("too few answers to tell"));
  EXPECT_THROW(evaluated("long: p99 > 5%"), std::runtime_error);
}

TEST_F(CompareTest, AGateDoesNotFailByChance) {
  // 6 % more in a server that wanders by more than that from one run to the next.
  const Wandering before = {.level_sigma = 0.3}, after = {.median_ms = 10.6, .level_sigma = 0.3};
  CompareOptions options;
  options.resamples = 300;
  options.gates = {ParseGate("p50 > +5%")};
  int failed = 0;
  for (int i = 0; i < 50; ++i) {
    failed +=
        Compare(WanderingRun(before, random_()), WanderingRun(after, random_()), options).failed();
  }
  EXPECT_LE(failed, 6);
}

TEST_F(CompareTest, ClassesAreMatchedByName) {
  const auto two = [](const std::string& first, const std::string& second, double first_ms,
                      double second_ms) {
    RunData run = EmptyRun(60);
    run.classes = {first, second};
    run.objectives.resize(2);
    run.cells.resize(2, std::vector<Cell>(1));
    for (int i = 0; i < 60; ++i) {
      run.seconds[i].resize(2);
      for (size_t cls = 0; cls < 2; ++cls) {
        const double ms = cls == 0 ? first_ms : second_ms;
        Count(
            {.second = i, .latency = std::chrono::nanoseconds(std::llround(ms * 1e6)), .cls = cls},
            run, 50);
      }
    }
    return run;
  };
  const Comparison comparison = Compare(two("x", "y", 10, 20), two("y", "x", 30, 10));
  ASSERT_EQ(comparison.classes.size(), 3u);
  EXPECT_EQ(Find(comparison, "p50", 0).trend, Trend::kNoChange) << "x";
  EXPECT_EQ(Find(comparison, "p50", 1).trend, Trend::kRegression) << "y";
  EXPECT_EQ(comparison.classes[2].name, "");
  EXPECT_EQ(Find(comparison, "p99", 2).trend, Trend::kRegression) << "the total";

  RunData other = two("y", "z", 20, 20);
  other.asked_rate = 50;
  other.asked_seconds = 30;
  const Comparison partly = Compare(two("x", "y", 10, 20), other);
  EXPECT_EQ(partly.classes.size(), 1u) << "no total of different classes";
  EXPECT_THAT(partly.notes, ::testing::ElementsAre("the rates asked for differ: 100/s and 50/s",
                                                   "the lengths differ: 60 s and 30 s",
                                                   "class 'x' is not in the second run",
                                                   "class 'z' is not in the first run"));
  EXPECT_THROW(Compare(two("x", "y", 1, 1), two("v", "w", 1, 1)), std::runtime_error);
}

}  // namespace
}  // namespace castor::load
