// Reports of runs: names and messages stay text, even hostile ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/load/report/report.h"
#include "tests/unit/load/made_run.h"

namespace castor::load {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
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

}  // namespace
}  // namespace castor::load
