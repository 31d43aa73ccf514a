// Reports of runs: names and messages stay text, even hostile ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/load/report/report.h"
#include "client/load/results/statistics.h"
#include "client/load/results/verdict.h"
#include "tests/unit/load/made_run.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kEvil[] = "<script>alert('1')</script>\x1b[31m\n\"&";

RunData EvilRun() {
  RunData run = GoodRun();
  run.classes = {kEvil};
  run.endpoints = {kEvil};
  run.server_version = run.server_setting = kEvil;
  run.workload = kEvil;
  run.begun = kEvil;
  run.cells[0][0].messages = {{kEvil, 3}};
  run.cells[0][0].kernels = {{kEvil, 3}};
  run.cells[0][0].stages.server.Record(1'000'000);
  Count({.second = 5, .outcome = Outcome::kFailed}, run, 500);
  return run;
}

// Whether all elements are closed in order.
bool IsWellFormed(const std::string& page) {
  std::vector<std::string> open;
  for (size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    const size_t end = page.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = page.substr(at + 1, end - at - 1);
    if (tag.starts_with('!') || tag.ends_with('/')) continue;
    if (!tag.starts_with('/')) {
      open.push_back(tag.substr(0, tag.find(' ')));
    } else if (open.empty() || open.back() != tag.substr(1)) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

TEST(Html, APeersTextIsNeverMarkup) {
  const RunData run = EvilRun();
  const std::string page = ReportHtml(run, Judge(run));
  EXPECT_TRUE(IsWellFormed(page));
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("\x1b")),
                          HasSubstr("&lt;script&gt;alert(&#39;1&#39;)")));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(Html, ShowsTheVerdictTheTablesAndTheCharts) {
  const RunData run = GoodRun();
  const std::string page = ReportHtml(run, Judge(run));
  EXPECT_TRUE(IsWellFormed(page));
  for (const char* part : {"✓ VALID", "objectives met", "p99.9", "from the intended time", "<svg",
                           "Latency of short over time", "Answers a second"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  RunData nothing = EmptyRun(10);
  EXPECT_TRUE(IsWellFormed(ReportHtml(nothing, Judge(nothing))));
  RunData hour = GoodRun(3600);
  EXPECT_LT(ReportHtml(hour, Judge(hour)).size(), 200'000U);
}

TEST(Summary, APercentileOfTooFewRequestsIsMarked) {
  RunData run = EmptyRun(10);
  Count({.second = 1}, run, 269);
  const std::string few = SummaryText(run, Judge(run));
  EXPECT_THAT(few, HasSubstr("10.0 ms  10.0 ms  10.0 ms?  10.0 ms?")) << "p50, p90, p99, p99.9";
  const std::string enough = SummaryText(GoodRun(), Judge(GoodRun()));
  EXPECT_THAT(enough, Not(HasSubstr("ms?"))) << enough;
}

TEST(Summary, IsCleanText) {
  const RunData run = EvilRun();
  const std::string text = SummaryText(run, Judge(run));
  EXPECT_THAT(text, AllOf(HasSubstr("VALID"), HasSubstr("MISSED"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(SummaryText(GoodRun(), Judge(GoodRun())),
              AllOf(HasSubstr("from the intended time"), HasSubstr("10.0 ms"), HasSubstr("6,000")));
}

TEST(Summary, SharesAreNeverRoundedToAllOrNothing) {
  EXPECT_EQ(PercentText(0, 10), "0%");
  EXPECT_EQ(PercentText(10, 10), "100%");
  EXPECT_EQ(PercentText(99'999, 100'000), "99.999%");
  EXPECT_EQ(PercentText(1, 1e9), "<0.0001%");
  EXPECT_EQ(PercentText(1, 0), "-");
}

// Each rule passes once and fails once, alone.

std::vector<std::string> Failed(const std::vector<Finding>& findings) {
  std::vector<std::string> rules;
  for (const Finding& finding : findings) {
    if (!finding.passed) rules.push_back(finding.rule);
    EXPECT_FALSE(finding.text.empty()) << finding.rule;
  }
  return rules;
}

std::vector<std::string> Failed(const RunData& run) { return Failed(Judge(run).validity); }

std::string TextOf(const RunData& run, const std::string& rule) {
  for (const Finding& finding : Judge(run).validity) {
    if (finding.rule == rule) return finding.text;
  }
  return "no such rule";
}

TEST(Verdict, AGoodRunIsValidAndMet) {
  const Verdict verdict = Judge(GoodRun());
  EXPECT_THAT(Failed(verdict.validity), IsEmpty());
  EXPECT_THAT(Failed(verdict.objectives), IsEmpty());
  EXPECT_EQ(ValidityText(verdict), "VALID");
  EXPECT_EQ(ObjectivesText(verdict), "objectives met");
  EXPECT_EQ(verdict.validity.size(), 9U);
}

TEST(Verdict, AShortRunIsInvalid) {
  EXPECT_THAT(Failed(GoodRun(9)), ElementsAre("duration"));
  EXPECT_THAT(TextOf(GoodRun(9), "duration"), HasSubstr("at least 10 s"));
}

TEST(Verdict, AP99TakesEnoughRequests) {
  RunData run = EmptyRun(60);
  for (int i = 0; i < 60; ++i) Count({.second = i}, run, 7);
  EXPECT_THAT(Failed(run), ElementsAre("enough-requests"));
  EXPECT_THAT(TextOf(run, "enough-requests"), HasSubstr("459 or more: run for at least 66 s"));
  EXPECT_EQ(RequestsNeeded(0.99, 0.99), 459);  // as MLPerf's LoadGen says
  EXPECT_EQ(RequestsNeeded(0.9, 0.99), 44);
  EXPECT_GE(ConfidenceWithin(0.99, 459, 0), 0.99);
  EXPECT_LT(ConfidenceWithin(0.99, 458, 0), 0.99);
  EXPECT_LT(ConfidenceWithin(0.99, 459, 1), 0.99);
}

TEST(Verdict, WorkThatPilesUpIsNoSteadyState) {
  RunData growing = GoodRun();
  for (size_t i = 0; i < 60; ++i) growing.seconds[i][0].in_flight = static_cast<int64_t>(5 + i);
  EXPECT_THAT(Failed(growing), ElementsAre("stationary"));
  growing.open_loop = false;  // has as many in flight as it has callers
  EXPECT_THAT(Failed(growing), IsEmpty());
  RunData slower = EmptyRun(60);
  for (int i = 0; i < 60; ++i) {
    Count({.second = i, .latency = milliseconds(10 + i / 2)}, slower, 99);
  }
  EXPECT_THAT(Failed(slower), ElementsAre("stationary"));
}

TEST(Verdict, TheClientsLagMustAddLittle) {
  const auto with_lag = [](milliseconds latency, milliseconds lag) {
    RunData run = EmptyRun(60);
    for (int i = 0; i < 60; ++i) {
      Count({.second = i, .latency = latency + lag, .lag = lag}, run, 100);
    }
    return run;
  };
  EXPECT_THAT(Failed(with_lag(milliseconds(4), milliseconds(1))), IsEmpty());
  EXPECT_THAT(Failed(with_lag(milliseconds(45), milliseconds(4))), IsEmpty()) << "below a fifth";
  EXPECT_THAT(Failed(with_lag(milliseconds(10), milliseconds(4))), ElementsAre("client-lag"));
}

TEST(Verdict, TheClientMustKeepUp) {
  RunData busy = GoodRun();
  busy.clients[0].busiest_thread = 0.95;
  EXPECT_THAT(Failed(busy), ElementsAre("client-cpu"));
  RunData dropped = GoodRun();
  Count({.second = 1, .outcome = Outcome::kDropped}, dropped, 1);
  EXPECT_THAT(Failed(dropped), ElementsAre("client-dropped"));
}

TEST(Verdict, AllSharesMustBeThere) {
  RunData share = GoodRun();
  share.clients[0].shares = 3;
  EXPECT_THAT(Failed(share), IsEmpty()) << "by itself";
  share.clients.push_back({.seconds = 60, .share = 2, .shares = 3});
  EXPECT_THAT(Failed(share), ElementsAre("shares"));
  EXPECT_THAT(TextOf(share, "shares"), HasSubstr("2 of 3"));
  share.clients.push_back({.seconds = 60, .share = 1, .shares = 3});
  EXPECT_THAT(Failed(share), IsEmpty());
}

TEST(Verdict, TheServersCountsMustAgree) {
  const auto counted = [](std::map<std::string, int64_t> counts, Outcomes calls) {
    RunData run = GoodRun();
    run.servers[0] = {.metrics = "m", .counted = std::move(counts), .calls = calls};
    return run;
  };
  EXPECT_THAT(Failed(counted({{"OK", 90}, {"CANCELLED", 2}}, {90, 0, 0, 2})), IsEmpty());
  // The server may count calls that this client ended with another code, or not at all.
  EXPECT_THAT(Failed(counted({{"OK", 91}}, {90, 0, 1, 2})), IsEmpty());
  EXPECT_THAT(Failed(counted({{"OK", 90}}, {90, 0, 0, 0, 0, 5})), IsEmpty()) << "dropped ones";
  EXPECT_THAT(Failed(counted({{"OK", 89}}, {90})), ElementsAre("counts-agree"));
  EXPECT_THAT(Failed(counted({{"OK", 91}}, {90})), ElementsAre("counts-agree"));
  EXPECT_THAT(Failed(counted({{"OK", 90}, {"INTERNAL", 1}}, {90})), ElementsAre("counts-agree"));
  EXPECT_THAT(TextOf(counted({{"OK", -1}}, {90}), "counts-agree"), HasSubstr("restarted"));
  EXPECT_THAT(TextOf(GoodRun(), "counts-agree"), HasSubstr("not checked"));
}

TEST(Verdict, NoVerifiedAnswerMayDiffer) {
  RunData run = GoodRun();
  run.cells[0][0].verified.equal = 50;
  EXPECT_THAT(TextOf(run, "verified"), HasSubstr("50 answers"));
  EXPECT_THAT(Failed(run), IsEmpty());
  run.cells[0][0].verified.different = 1;
  EXPECT_THAT(Failed(run), ElementsAre("verified"));
}

TEST(Verdict, ObjectivesAreShownWithConfidence) {
  const auto objectives = [](int slow, int requests) {
    RunData run = EmptyRun(10);
    for (int i = 0; i < 10; ++i) Count({.second = i}, run, requests / 10);
    Count({.second = 2, .latency = milliseconds(60)}, run, slow);
    return Judge(run).objectives;
  };
  EXPECT_TRUE(objectives(2, 2000).at(0).passed);
  const Finding missed = objectives(40, 2000).at(0);
  EXPECT_FALSE(missed.passed);
  EXPECT_FALSE(missed.unsure);
  EXPECT_EQ(missed.rule, "short: p99 <= 50.0 ms");
  EXPECT_THAT(missed.text, HasSubstr("40 of 2040"));
  const Finding unsure = objectives(4, 600).at(0);
  EXPECT_FALSE(unsure.passed);
  EXPECT_TRUE(unsure.unsure) << "fewer are late than may be, and that may be chance";
  EXPECT_THAT(unsure.text, HasSubstr("run for longer"));
  RunData errors = GoodRun();
  Count({.second = 5, .outcome = Outcome::kFailed}, errors, 100);
  EXPECT_THAT(Failed(Judge(errors).objectives),
              ElementsAre("short: p99 <= 50.0 ms", "short: errors <= 1 %"));
}

}  // namespace
}  // namespace castor::load
