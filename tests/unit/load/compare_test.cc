#include "client/load/results/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/unit/load/made_run.h"

namespace castor::load {
namespace {

using ::testing::HasSubstr;

Comparison With(const RunData& a, const RunData& b, const std::string& gate) {
  return Compare(a, b, {ParseGate(gate)});
}

GateOutcome EndOf(const RunData& a, const RunData& b, const std::string& gate) {
  return With(a, b, gate).gates.at(0).end;
}

TEST(Compare, FindsWhatChanged) {
  const RunData before = NoisyRun(1, 0.02, 1);
  EXPECT_EQ(Compare(before, NoisyRun(1.2, 0.02, 2)).trend(), Trend::kRegression);
  EXPECT_EQ(Compare(before, NoisyRun(0.8, 0.02, 3)).trend(), Trend::kImprovement);
  const Comparison same = Compare(before, NoisyRun(1, 0.02, 4));
  EXPECT_NE(same.trend(), Trend::kRegression);
  const Change& p50 = same.classes.at(0).changes.at(0);
  EXPECT_EQ(p50.metric, "p50");
  EXPECT_LT(p50.interval.low, p50.change);
  EXPECT_GT(p50.interval.high, p50.change);
}

// Seconds depend on each other, so a run that was slow for a while is not a regression by itself.
TEST(Compare, NoiseBetweenSecondsWidensTheInterval) {
  const auto width = [](double jitter) {
    const Comparison comparison = Compare(NoisyRun(1, jitter, 1), NoisyRun(1, jitter, 2));
    const Interval& interval = comparison.classes.at(0).changes.at(0).interval;
    return interval.high - interval.low;
  };
  EXPECT_GT(width(0.5), 4 * width(0.02));
}

TEST(Compare, AnInvalidRunMakesAllUnclear) {
  Comparison comparison = With(NoisyRun(1, 0.02, 1), NoisyRun(0.8, 0.02, 3), "p50 < -5%");
  ASSERT_EQ(comparison.trend(), Trend::kImprovement);
  comparison.MarkUnclear();
  EXPECT_EQ(comparison.trend(), Trend::kUnclear);
  EXPECT_TRUE(comparison.Has(GateOutcome::kUnknown));
  EXPECT_FALSE(comparison.Has(GateOutcome::kFailed));
}

TEST(Compare, AGatePassesFailsOrCannotTell) {
  const RunData before = NoisyRun(1, 0.02, 1);
  EXPECT_EQ(EndOf(before, NoisyRun(1, 0.02, 2), "p50 > +5%"), GateOutcome::kPassed);
  EXPECT_EQ(EndOf(before, NoisyRun(1.2, 0.02, 3), "p50 > +5%"), GateOutcome::kFailed);
  EXPECT_EQ(EndOf(before, NoisyRun(1.2, 0.02, 3), "short: p50 > +5%"), GateOutcome::kFailed);
  EXPECT_EQ(EndOf(before, NoisyRun(0.8, 0.02, 3), "p50 < -5%"), GateOutcome::kFailed);
  EXPECT_EQ(EndOf(NoisyRun(1, 0.8, 1), NoisyRun(1.1, 0.8, 5), "p99 > -90%"), GateOutcome::kFailed);
  // A gate that cannot be decided does not pass.
  const Comparison few = With(GoodRun(4), GoodRun(4), "p50 > +50%");
  EXPECT_EQ(few.gates.at(0).end, GateOutcome::kUnknown);
  EXPECT_THAT(few.gates.at(0).text, HasSubstr("too few answers to tell"));
  EXPECT_EQ(EndOf(before, NoisyRun(1.02, 0.02, 6), "p99.99 > +5%"), GateOutcome::kUnknown);
  const double change =
      Compare(NoisyRun(1, 0.5, 1), NoisyRun(1.05, 0.5, 7)).classes.at(0).changes.at(0).change;
  const std::string just_below = "p50 > " + std::to_string(100 * change - 0.1) + "%";
  EXPECT_EQ(EndOf(NoisyRun(1, 0.5, 1), NoisyRun(1.05, 0.5, 7), just_below), GateOutcome::kUnknown);
}

TEST(Compare, NoAnswersAreWorseThanAny) {
  RunData dead = EmptyRun(60);
  for (int i = 0; i < 60; ++i) Count({.second = i, .outcome = Outcome::kFailed}, dead, 100);
  EXPECT_EQ(Compare(GoodRun(), dead).trend(), Trend::kRegression);
  EXPECT_EQ(EndOf(GoodRun(), dead, "p50 > +5%"), GateOutcome::kFailed);
  EXPECT_EQ(EndOf(GoodRun(), dead, "errors > +1%"), GateOutcome::kFailed);
}

TEST(Compare, SaysWhatMakesRunsLessComparable) {
  RunData other = GoodRun();
  other.asked_rate = 200;
  other.classes = {"long"};
  EXPECT_THROW(Compare(GoodRun(), other), std::runtime_error);
  other.classes = {"short"};
  EXPECT_THAT(Compare(GoodRun(), other).notes.at(0), HasSubstr("rates asked for"));
}

TEST(Compare, GatesAreReadStrictly) {
  const Gate gate = ParseGate(" documents : p99.9 > +5 % ");
  EXPECT_EQ(gate.cls, "documents");
  EXPECT_EQ(gate.metric, "p99.9");
  EXPECT_EQ(gate.threshold, 0.05);
  EXPECT_FALSE(ParseGate("goodput < -2%").above);
  for (const char* bad : {"p99", "p99 > 5", "p0 > 1%", "mean > 1%", ": p99 > 1%", "p99 > x%",
                          "p99 > +-1%", "p99 > 1%%"}) {
    EXPECT_THROW(ParseGate(bad), std::runtime_error) << bad;
  }
  EXPECT_THROW(With(GoodRun(), GoodRun(), "nobody: p99 > 1%"), std::runtime_error);
}

}  // namespace
}  // namespace castor::load
