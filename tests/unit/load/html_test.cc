#include "client/load/output/html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/load_runs.h"
#include "tests/unit/load/markup_check.h"

namespace castor::load {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// What stands in the script element with the charts' values.
std::string DataOf(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"chart-data\">";
  const size_t at = html.find(begin) + begin.size();
  return html.substr(at, html.find("</script>", at) - at);
}

TEST(ReportHtmlTest, IsWellFormedAndHasItsParts) {
  const RunData run = SimulateRun({});
  const std::string html = ReportHtml(run, VerdictOf(run, true));
  const MarkupCheck check(html);
  ASSERT_EQ(check.fault(), "");
  EXPECT_EQ(check.CountOf("h1"), 1u);
  // Two classes, rates, in flight, lag, percentiles, stages: each wide and narrow.
  EXPECT_EQ(std::ranges::count(check.Values("role"), "img"), 7 * 2);
  EXPECT_EQ(check.CountOf("caption"), check.CountOf("table"));
  EXPECT_GE(check.CountOf("table"), 9u);
  for (const char* text : {"✓ Valid", "✗ Objectives missed", "client-lag", "10.0.4.18:50051",
                           "RESOURCE_EXHAUSTED: QUEUE_FULL", "improved_clustered",
                           "seed = 20261123", "castor-server 0.1.0", "median error"}) {
    EXPECT_THAT(check.text(), HasSubstr(text));
  }
}

TEST(ReportHtmlTest, SaysWhyARunIsInvalid) {
  const RunData run = SimulateRun({.seconds = 3});
  const MarkupCheck check(ReportHtml(run, VerdictOf(run, false)));
  EXPECT_THAT(check.text(), HasSubstr("✗ Invalid: the run failed 1 of 9 rules"));
  EXPECT_THAT(check.text(), HasSubstr("client-lag: p99 of the client's lag"));
}

TEST(ReportHtmlTest, NeedsNothingFromElsewhere) {
  const RunData run = SimulateRun({.seconds = 3});
  const std::string html = ReportHtml(run, VerdictOf(run, true));
  const MarkupCheck check(html);
  for (const char* element : {"link", "img", "iframe", "object", "embed", "use", "image"}) {
    EXPECT_EQ(check.CountOf(element), 0u) << element;
  }
  for (const char* attribute : {"src", "href", "style", "onclick", "onload"}) {
    EXPECT_TRUE(check.Values(attribute).empty()) << attribute;
  }
  EXPECT_THAT(html, Not(HasSubstr("url(")));
  EXPECT_THAT(html, Not(HasSubstr("@import")));
  EXPECT_THAT(check.Values("content")[0],
              ::testing::MatchesRegex("default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]+=*'; "
                                      "script-src 'sha256-[A-Za-z0-9+/]+=*'"));
}

TEST(ReportHtmlTest, ShowsHostileNamesAsText) {
  const std::string hostile = "</script></style><img src=x onerror=alert(1)> \"'&amp; <!-- \xff";
  RunData run = SimulateRun({.seconds = 3});
  Verdict verdict = VerdictOf(run, false);
  const std::string harmless = ReportHtml(run, verdict);
  run.classes = {hostile + "1", hostile + "2"};
  run.endpoints = {hostile, hostile};
  run.begun = run.client_version = run.server_version = hostile;
  run.workload_toml = "# " + hostile.substr(0, hostile.size() - 1);
  for (auto& endpoints : run.cells) {
    for (Cell& cell : endpoints) {
      cell.messages = {{hostile, 3}};
      cell.kernels = {{hostile, 3}};
    }
  }
  for (Finding& finding : verdict.validity) finding.rule = finding.text = hostile;
  const std::string html = ReportHtml(run, verdict);
  const MarkupCheck check(html), other(harmless);
  ASSERT_EQ(check.fault(), "");
  EXPECT_EQ(check.CountOf("img"), 0u);
  EXPECT_EQ(check.CountOf("script"), other.CountOf("script"));
  EXPECT_THAT(check.text(), HasSubstr("<img src=x onerror=alert(1)>"));
  const auto data = nlohmann::json::parse(DataOf(html));
  EXPECT_THAT(data["curves"][0]["name"].get<std::string>(), StartsWith("</script></style><img"));
}

TEST(ReportHtmlTest, HasNoTokens) {
  const RunData run = SimulateRun({.seconds = 2});
  ASSERT_THAT(run.workload_toml, HasSubstr("secret-of-the-documents"));
  EXPECT_THAT(ReportHtml(run, {}), Not(HasSubstr("secret-of-the-documents")));
}

TEST(ReportHtmlTest, ValuesForThePointerAreThoseOfTheCharts) {
  const RunData run = SimulateRun({.seconds = 20});
  const auto data = nlohmann::json::parse(DataOf(ReportHtml(run, {})));
  EXPECT_EQ(data["seconds"], 20);
  EXPECT_EQ(data["step"], 1);
  const auto& p99 = data["panels"]["c0"][1];
  EXPECT_EQ(p99["name"], "p99");
  ASSERT_EQ(p99["values"].size(), 20u);
  EXPECT_NEAR(p99["values"][7].get<double>(),
              static_cast<double>(run.seconds[7][0].intended.ValueAt(0.99)) / 1e3, 1);
  const auto& curve = data["curves"][0];
  EXPECT_EQ(curve["count"], run.OfClass(0).intended.count());
  EXPECT_EQ(curve["intended"].back(), run.OfClass(0).intended.max() / 1000);
}

TEST(ReportHtmlTest, AnHourOfFourClassesStaysBelowTwoMegabytes) {
  const RunData run = SimulateRun({.seconds = 3600, .rate = 60, .classes = 4});
  const std::string html = ReportHtml(run, VerdictOf(run, true));
  EXPECT_LT(html.size(), 2u << 20);
  EXPECT_EQ(MarkupCheck(html).fault(), "");
}

TEST(ReportHtmlTest, ARunOfNothingIsStillAPage) {
  for (const size_t classes : {0u, 1u}) {
    RunData run;
    run.classes.resize(classes, "c");
    run.cells.assign(classes, std::vector<Cell>(1));
    const MarkupCheck check(ReportHtml(run, {}));
    EXPECT_EQ(check.fault(), "");
    EXPECT_THAT(check.text(), HasSubstr("Load test"));
  }
}

TEST(ReportHtmlTest, ChartsHoldNoBrokenNumbers) {
  RunData run = SimulateRun({.seconds = 4});
  for (auto& second : run.seconds) second[1] = {};  // a class without a single answer
  const std::string html = ReportHtml(run, {});
  const MarkupCheck check(html);
  for (const char* attribute : {"d", "x", "y", "width", "height", "cx", "cy"}) {
    EXPECT_THAT(check.Values(attribute), Each(Not(AnyOf(HasSubstr("nan"), HasSubstr("inf")))));
  }
}

}  // namespace
}  // namespace castor::load
