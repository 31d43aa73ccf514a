#include "client/load/output/openmetrics.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/load_runs.h"

namespace castor::load {
namespace {

// A page read by the rules of OpenMetrics 1.0.0. Faults are test failures.
class Page {
 public:
  explicit Page(const std::string& text) {
    EXPECT_TRUE(text.ends_with("# EOF\n"));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) Read(line);
    EXPECT_TRUE(ended_);
  }

  // By name and labels as written.
  std::map<std::string, double> samples;
  std::map<std::string, std::string> types;

 private:
  void Read(const std::string& line) {
    SCOPED_TRACE(line);
    EXPECT_FALSE(ended_) << "a line after # EOF";
    static const std::regex kMeta("# (TYPE|UNIT|HELP) ([a-z_]+) (.+)");
    static const std::regex kSample(
        "([a-z_]+)(\\{([a-z_]+=\"([^\"\\\\\n]|\\\\[\\\\\"n])*\",?)+\\})? ([0-9.e+-]+)");
    std::smatch match;
    if (line == "# EOF") {
      ended_ = true;
    } else if (std::regex_match(line, match, kMeta)) {
      Meta(match[1], match[2], match[3]);
    } else if (std::regex_match(line, match, kSample)) {
      EXPECT_TRUE(IsOfFamily(match[1])) << family_;
      const std::string series = line.substr(0, line.rfind(' '));
      EXPECT_TRUE(samples.emplace(series, std::stod(match[5])).second) << "twice";
    } else {
      ADD_FAILURE() << "neither a sample nor what describes one";
    }
  }

  void Meta(const std::string& kind, const std::string& name, const std::string& value) {
    if (kind == "TYPE") {
      EXPECT_TRUE(types.emplace(name, value).second) << "a family in two places";
      family_ = name;
    }
    EXPECT_EQ(name, family_);
    if (kind == "UNIT") {
      EXPECT_TRUE(name.ends_with("_" + value));
    }
  }

  bool IsOfFamily(const std::string& name) const {
    static const std::map<std::string, std::set<std::string>> suffixes = {
        {"counter", {"_total"}},
        {"gauge", {""}},
        {"info", {"_info"}},
        {"histogram", {"_bucket", "_count", "_sum"}}};
    return name.starts_with(family_) &&
           suffixes.at(types.at(family_)).contains(name.substr(family_.size()));
  }

  bool ended_ = false;
  std::string family_;
};

TEST(OpenMetricsTest, FollowsTheFormat) {
  const RunData run = SimulateRun({.seconds = 5});
  const Page page(OpenMetricsText(run, VerdictOf(run, true)));
  EXPECT_EQ(page.types.at("castor_load_requests"), "counter");
  EXPECT_EQ(page.types.at("castor_load_latency_seconds"), "histogram");
  EXPECT_EQ(page.samples.at("castor_load_valid"), 1);
}

TEST(OpenMetricsTest, BucketsAddUpAndHoldWhatWasRecorded) {
  RunData run;
  run.classes = {"c"};
  run.endpoints = {"e"};
  run.cells.assign(1, std::vector<Cell>(1));
  for (const int64_t ms : {1, 4, 4, 60, 200'000}) {
    run.cells[0][0].intended.Record(ms * 1'000'000);
  }
  const Page page(OpenMetricsText(run, {}));
  const std::string labels = "{class=\"c\",endpoint=\"e\",from=\"intended\"";
  const std::string bucket = "castor_load_latency_seconds_bucket" + labels + ",le=\"";
  EXPECT_EQ(page.samples.at(bucket + "0.0005\"}"), 0);
  EXPECT_EQ(page.samples.at(bucket + "0.003\"}"), 1);
  EXPECT_EQ(page.samples.at(bucket + "0.005\"}"), 3);
  EXPECT_EQ(page.samples.at(bucket + "1.0\"}"), 4);
  EXPECT_EQ(page.samples.at(bucket + "60.0\"}"), 4);
  EXPECT_EQ(page.samples.at(bucket + "+Inf\"}"), 5);
  EXPECT_EQ(page.samples.at("castor_load_latency_seconds_count" + labels + "}"), 5);
  EXPECT_NEAR(page.samples.at("castor_load_latency_seconds_sum" + labels + "}"), 200.069, 1e-6);
}

TEST(OpenMetricsTest, CountsAreTheRuns) {
  const RunData run = SimulateRun({.seconds = 30});
  const Page page(OpenMetricsText(run, VerdictOf(run, false)));
  double requests = 0;
  for (const auto& [series, value] : page.samples) {
    if (series.starts_with("castor_load_requests_total")) requests += value;
  }
  EXPECT_EQ(requests, static_cast<double>(run.Total().planned()));
  EXPECT_EQ(page.samples.at("castor_load_valid"), 0);
  EXPECT_EQ(page.samples.at("castor_load_rule_passed{rule=\"client-lag\"}"), 0);
  EXPECT_EQ(page.samples.at("castor_load_rule_passed{rule=\"duration\"}"), 1);
}

TEST(OpenMetricsTest, EscapesHostileNames) {
  RunData run = SimulateRun({.seconds = 1, .classes = 1});
  run.classes = {"a\"} 1\n# EOF \\ \xff"};
  const Page page(OpenMetricsText(run, {}));
  EXPECT_TRUE(page.samples.contains(
      "castor_load_good_requests_total{class=\"a\\\"} 1\\n# EOF \\\\ \xef\xbf\xbd\","
      "endpoint=\"10.0.4.17:50051\"}"));
}

// promtool reads Prometheus' older text format, in which counters and infos carry their suffix in
// the TYPE line, too.
TEST(OpenMetricsTest, PromtoolFindsNothingToSay) {
  if (std::system("promtool --version >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "promtool is not installed: the style is not checked";
  }
  const RunData run = SimulateRun({.seconds = 5});
  std::string text = OpenMetricsText(run, VerdictOf(run, true));
  std::map<std::string, std::string> suffixes;
  for (const auto& [family, type] : Page(text).types) {
    if (type == "counter") suffixes[family] = "_total";
    if (type == "info") suffixes[family] = "_info";
  }
  std::istringstream lines(text);
  std::string older;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, kind, name;
    words >> hash >> kind >> name;
    if (hash == "#" && (kind == "EOF" || kind == "UNIT")) continue;
    if (hash == "#" && suffixes.contains(name)) {
      line = "# " + kind + " " + name + suffixes[name] + line.substr(kind.size() + name.size() + 3);
      if (line.ends_with(" info")) line.replace(line.size() - 4, 4, "gauge");
    }
    older += line + "\n";
  }
  FILE* const promtool = popen("promtool check metrics 2>&1", "w");
  ASSERT_NE(promtool, nullptr);
  fwrite(older.data(), 1, older.size(), promtool);
  EXPECT_EQ(pclose(promtool), 0) << "promtool check metrics";
}

}  // namespace
}  // namespace castor::load
