#include "server/metrics/metrics_page.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace castor::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<MetricFamily> Families() {
  MetricFamily counter{"calls_total", "Calls.", MetricType::Counter, {}};
  ClientMetric calls;
  calls.label = {{"code", "OK"}};
  calls.counter.value = 12;
  counter.metric.push_back(calls);
  MetricFamily gauge{"level", "A \"level\" \\ on\ntwo lines.", MetricType::Gauge, {}};
  ClientMetric level;
  level.gauge.value = 0.1;
  gauge.metric.push_back(level);
  level.label = {{"name", "a\"b\\c\nd"}};
  level.gauge.value = -kInfinity;
  gauge.metric.push_back(level);
  level.label = {{"name", "none"}};
  level.gauge.value = std::nan("");
  gauge.metric.push_back(level);
  MetricFamily histogram{"seconds", "Time.", MetricType::Histogram, {}};
  ClientMetric seconds;
  seconds.label = {{"kernel", "vanilla"}};
  seconds.histogram = {
      .sample_count = 4, .sample_sum = 2.5, .bucket = {{1, 0.001}, {3, 1}, {4, kInfinity}}};
  histogram.metric.push_back(seconds);
  return {counter, gauge, histogram};
}

std::vector<std::optional<Exemplar>> NoExemplars(const MetricFamily&, const ClientMetric&) {
  return {};
}

// As sampled requests leave them: one in the second bucket.
std::vector<std::optional<Exemplar>> OneExemplar(const MetricFamily& family, const ClientMetric&) {
  EXPECT_EQ(family.name, "seconds");
  TraceContext of{.sampled = true};
  of.trace.fill(0xab);
  of.span.fill(0x01);
  const auto at =
      std::chrono::system_clock::time_point(std::chrono::milliseconds(1'790'000'000'007));
  return {std::nullopt, Exemplar{.value = 0.25, .at = at, .of = of}, std::nullopt};
}

TEST(MetricsPageTest, TheTextFormat) {
  EXPECT_EQ(WritePage(PageFormat::kText, Families(), NoExemplars),
            "# HELP calls_total Calls.\n"
            "# TYPE calls_total counter\n"
            "calls_total{code=\"OK\"} 12\n"
            "# HELP level A \"level\" \\\\ on\\ntwo lines.\n"
            "# TYPE level gauge\n"
            "level 0.1\n"
            "level{name=\"a\\\"b\\\\c\\nd\"} -Inf\n"
            "level{name=\"none\"} NaN\n"
            "# HELP seconds Time.\n"
            "# TYPE seconds histogram\n"
            "seconds_bucket{kernel=\"vanilla\",le=\"0.001\"} 1\n"
            "seconds_bucket{kernel=\"vanilla\",le=\"1.0\"} 3\n"
            "seconds_bucket{kernel=\"vanilla\",le=\"+Inf\"} 4\n"
            "seconds_sum{kernel=\"vanilla\"} 2.5\n"
            "seconds_count{kernel=\"vanilla\"} 4\n");
  EXPECT_EQ(WritePage(PageFormat::kText, Families(), OneExemplar).find("trace_id"),
            std::string::npos)
      << "it has no exemplars";
}

TEST(MetricsPageTest, OpenMetrics) {
  EXPECT_EQ(WritePage(PageFormat::kOpenMetrics, Families(), OneExemplar),
            "# HELP calls Calls.\n"
            "# TYPE calls counter\n"
            "calls_total{code=\"OK\"} 12\n"
            "# HELP level A \\\"level\\\" \\\\ on\\ntwo lines.\n"
            "# TYPE level gauge\n"
            "level 0.1\n"
            "level{name=\"a\\\"b\\\\c\\nd\"} -Inf\n"
            "level{name=\"none\"} NaN\n"
            "# HELP seconds Time.\n"
            "# TYPE seconds histogram\n"
            "seconds_bucket{kernel=\"vanilla\",le=\"0.001\"} 1\n"
            "seconds_bucket{kernel=\"vanilla\",le=\"1.0\"} 3 # "
            "{trace_id=\"abababababababababababababababab\",span_id=\"0101010101010101\"} 0.25 "
            "1790000000.007\n"
            "seconds_bucket{kernel=\"vanilla\",le=\"+Inf\"} 4\n"
            "seconds_sum{kernel=\"vanilla\"} 2.5\n"
            "seconds_count{kernel=\"vanilla\"} 4\n"
            "# EOF\n");
}

TEST(MetricsPageTest, FamiliesWithoutSeriesAreLeftOut) {
  const MetricFamily empty{"calls_total", "Calls.", MetricType::Counter, {}};
  EXPECT_EQ(WritePage(PageFormat::kText, {empty}, NoExemplars), "");
  EXPECT_EQ(WritePage(PageFormat::kOpenMetrics, {empty}, NoExemplars), "# EOF\n");
}

TEST(AcceptTest, WhoNamesOpenMetricsGetsIt) {
  for (const char* accept :
       {"application/openmetrics-text", "text/plain, application/openmetrics-text; version=1.0.0",
        // What Prometheus sends, before 2.43 and since.
        "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
        "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;"
        "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.3"}) {
    EXPECT_EQ(FormatFor(accept), PageFormat::kOpenMetrics) << accept;
  }
}

TEST(AcceptTest, TextIsForAllOthers) {
  for (const char* accept :
       {"", "*/*", "text/plain", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        "application/json", "application/openmetrics-tex", "\xff\xfe", "application/*"}) {
    EXPECT_EQ(FormatFor(accept), PageFormat::kText) << accept;
  }
}

TEST(ExemplarsTest, EachBucketKeepsTheLast) {
  Exemplars exemplars({0.1, 1});
  TraceContext of{.sampled = true};
  for (const double value : {0.05, 0.1, 0.5, 7.0, 9.0}) {
    of.span[0] = static_cast<uint8_t>(of.span[0] + 1);
    exemplars.Add(value, of);
  }
  const auto read = exemplars.Read();
  ASSERT_EQ(read.size(), 3U);
  EXPECT_EQ(read[0]->value, 0.1) << "a bucket's bound belongs to it";
  EXPECT_EQ(read[0]->of.span[0], 2);
  EXPECT_EQ(read[1]->value, 0.5);
  EXPECT_EQ(read[2]->value, 9);
}

}  // namespace
}  // namespace castor::server
