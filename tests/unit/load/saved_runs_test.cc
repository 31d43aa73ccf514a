// Saved runs: nothing is lost, shares add up, and no file breaks the reader.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

#include "client/load/results/compare.h"
#include "client/load/results/run_json.h"
#include "tests/unit/load/made_run.h"

namespace castor::load {
namespace {

using ::testing::HasSubstr;

RunData FullRun() {
  RunData run = GoodRun(12);
  Cell& cell = run.cells[0][0];
  cell.kernels = {{"vanilla", 7}};
  cell.messages = {{"the queue is \"full\"\n", 3}};
  cell.stages.queue.Record(5'000'000, 3);
  cell.verified = {.equal = 5, .different = 1};
  run.workload = "[load]\nrate = 5\n";
  run.servers[0] = {.metrics = "127.0.0.1:9464", .counted = {{"OK", 1200}}, .calls = {1200}};
  run.server_setting = "models minilm; cpu: a processor";
  run.seed = UINT64_MAX;
  return run;
}

std::string TextOf(const RunData& run) { return FormatRun(run, Judge(run)); }

std::string ErrorOf(const std::string& text) {
  try {
    (void)ParseRun(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(RunJson, LosesNothing) {
  const RunData run = FullRun();
  const std::string text = TextOf(run);
  EXPECT_EQ(TextOf(ParseRun(text)), text);
  const Json json = Json::parse(text);
  EXPECT_EQ(json["summary"]["total"]["outcomes"]["ok"], 1200);
  EXPECT_NEAR(json["summary"]["classes"]["short"]["intended"]["p50_ms"], 10, 0.1);
  EXPECT_EQ(json["verdict"]["valid"], false) << "an answer differed";
}

TEST(RunJson, AnErrorNamesTheField) {
  const Json good = Json::parse(TextOf(FullRun()));
  const auto broken = [&](const std::function<void(Json&)>& breaks) {
    Json json = good;
    breaks(json);
    return ErrorOf(json.dump());
  };
  EXPECT_THAT(ErrorOf("[1, 2"), HasSubstr("parse error"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("not a run saved"));
  EXPECT_THAT(ErrorOf(std::string(100'000, '[')), HasSubstr("nested too deeply"));
  EXPECT_THAT(broken([](Json& j) { j["version"] = 1; }), HasSubstr("version"));
  EXPECT_THAT(broken([](Json& j) { j.erase("begun"); }), HasSubstr("'begun' not found"));
  EXPECT_THAT(broken([](Json& j) { j["cells"][0][0]["good"] = "x"; }),
              HasSubstr("(/cells/0/0/good) type must be"));
  EXPECT_THAT(broken([](Json& j) { j["cells"][0][0]["intended"]["counts"][0] = -1; }),
              HasSubstr("(/cells/0/0/intended) must hold counts"));
  EXPECT_THAT(broken([](Json& j) { j["cells"][0][0]["intended"]["lowest_ns"][0] = 3; }),
              HasSubstr("lowest values"));
  EXPECT_THAT(broken([](Json& j) { j["cells"][0][0]["intended"]["max_ns"] = 1; }),
              HasSubstr("max_ns"));
  EXPECT_THAT(broken([](Json& j) { j["cells"] = Json::array(); }), HasSubstr("cells"));
  EXPECT_THAT(broken([](Json& j) { j["clients"] = Json::array(); }), HasSubstr("clients"));
  EXPECT_THAT(broken([](Json& j) { j["seconds"][3] = Json::array(); }), HasSubstr("seconds"));
  EXPECT_THAT(broken([](Json& j) { j["objectives"][0]["latencies"][0]["quantile"] = 2; }),
              HasSubstr("quantile"));
  EXPECT_THAT(broken([](Json& j) { j["cells"][0][0]["above_goal"] = Json::array(); }),
              HasSubstr("above_goal"));
}

TEST(RunJson, SharesOfOnePlanAddUp) {
  const auto share = [](int64_t index) {
    RunData run = GoodRun(12);
    run.clients[0].share = index;
    run.clients[0].shares = 2;
    run.asked_rate = 50;
    return run;
  };
  RunData sum = share(0);
  sum.Merge(share(1));
  EXPECT_EQ(sum.Total().planned(), 2 * GoodRun(12).Total().planned());
  EXPECT_EQ(sum.asked_rate, 100);
  EXPECT_EQ(sum.clients.size(), 2U);
  EXPECT_EQ(sum.OfSecond(3).outcomes[0], 200);
  EXPECT_THROW(sum.Merge(share(1)), std::runtime_error) << "it is there already";
  RunData other = share(1);
  other.seed = 7;
  EXPECT_THROW(sum.Merge(other), std::runtime_error) << "another plan";
  EXPECT_EQ(TextOf(ParseRun(TextOf(sum))), TextOf(sum));
}

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
