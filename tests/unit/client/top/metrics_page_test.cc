#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "client/metrics/page.h"

namespace castor::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;

TEST(ParseMetricsTest, ReadsSeriesWithAndWithoutLabels) {
  EXPECT_THAT(
      ParseMetrics("# HELP a text\n# TYPE a counter\na 1\nb{x=\"1\"} 2.5\r\n\n c\t3\nd{} 4"),
      ElementsAre(Pair("a", 1), Pair("b{x=\"1\"}", 2.5), Pair("c", 3), Pair("d{}", 4)));
}

TEST(ParseMetricsTest, ReadsOpenMetricsWithTimestampsAndExemplars) {
  const MetricsPage page = ParseMetrics(
      "a_bucket{le=\"0.1\"} 17 # {trace_id=\"4bf9 {}\"} 0.067 1.6e9\n"
      "a_total 3 1700000000.5\n"
      "b_total{x=\"y\"} 4 1700000000 # {span_id=\"\\\"\"} 1 1\n"
      "# EOF\n");
  EXPECT_THAT(page, ElementsAre(Pair("a_bucket{le=\"0.1\"}", 17), Pair("a_total", 3),
                                Pair("b_total{x=\"y\"}", 4)));
}

TEST(ParseMetricsTest, KeepsNumbersThatAreNoFiniteNumbers) {
  const MetricsPage page = ParseMetrics("a NaN\nb +Inf\nc -Inf\nd 1e-3\ne +4\n");
  EXPECT_TRUE(std::isnan(page.at("a")));
  EXPECT_EQ(page.at("b"), HUGE_VAL);
  EXPECT_EQ(page.at("c"), -HUGE_VAL);
  EXPECT_EQ(page.at("d"), 1e-3);
  EXPECT_EQ(page.at("e"), 4);
}

TEST(ParseMetricsTest, SkipsWhatIsNoSeries) {
  EXPECT_THAT(ParseMetrics("a\na \na{ 1\na{x=\"} 1\na{x=\"1\"}\na one\n1a 1\n{x=\"1\"} 1\na-b 1\n"
                           "a 0x1\n<html>\n\xff\xfe 1\na{x=\"\\\"} 1\n"),
              IsEmpty());
  EXPECT_THAT(ParseMetrics("long{x=\"" + std::string(20'000, 'x') + "\"} 1\nshort 1\n"),
              ElementsAre(Pair("short", 1)));
}

TEST(ParseMetricsTest, TheLastOfTwoCountsAndThereIsAnEnd) {
  EXPECT_THAT(ParseMetrics("a 1\na 2\n"), ElementsAre(Pair("a", 2)));
  std::string many;
  for (int i = 0; i < 70'000; ++i) many += "a" + std::to_string(i) + " 1\n";
  EXPECT_EQ(ParseMetrics(many).size(), 65'536u);
}

TEST(ParseMetricsTest, LabelsAreUnescaped) {
  const MetricsPage page =
      ParseMetrics(R"(a{x="q\"uo}te",y="back\\slash",z="li\nne", le="+Inf",} 1)");
  ASSERT_EQ(page.size(), 1u);
  ForEachSeries(page, "a", [](std::string_view labels, double value) {
    EXPECT_EQ(LabelOf(labels, "x"), "q\"uo}te");
    EXPECT_EQ(LabelOf(labels, "y"), "back\\slash");
    EXPECT_EQ(LabelOf(labels, "z"), "li\nne");
    EXPECT_EQ(LabelOf(labels, "le"), "+Inf");
    EXPECT_EQ(LabelOf(labels, "e"), "");
    EXPECT_EQ(value, 1);
  });
}

TEST(ParseMetricsTest, AFamilyIsItsSeriesAndNoOthers) {
  const MetricsPage page =
      ParseMetrics("a 1\na{x=\"1\"} 2\na{x=\"2\"} 4\na_b 8\na_b{x=\"1\"} 16\n");
  EXPECT_THAT(SumOf(page, "a"), Optional(7));
  EXPECT_THAT(SumOf(page, "a", "x=\"2\""), Optional(4));
  EXPECT_THAT(SumOf(page, "a_b"), Optional(24));
  EXPECT_EQ(SumOf(page, "b"), std::nullopt);
}

}  // namespace
}  // namespace castor::client
