#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "client/metrics/fetch.h"
#include "client/metrics/page.h"
#include "tests/unit/client/canned_server.h"

namespace castor::client {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

// Fetching pages from servers that answer well, badly, late, or without end.

absl::StatusOr<MetricsPage> AnswerOf(const MetricsAddress& address,
                                     milliseconds timeout = milliseconds(20'000)) {
  absl::StatusOr<MetricsPage> answer = absl::InternalError("none");
  MetricsFetcher fetcher({}, timeout);
  fetcher.Start(address, [&](absl::StatusOr<MetricsPage> page) { answer = std::move(page); });
  while (fetcher.pending()) fetcher.Wait(milliseconds(1000));
  return answer;
}

MetricsAddress AddressOf(const std::string& host) { return *ParseMetricsAddress(host, false); }

absl::StatusOr<MetricsPage> AnswerOf(const CannedServer& server) {
  return AnswerOf(AddressOf(server.address()));
}

TEST(ParseMetricsAddressTest, TakesHostsAndUrls) {
  const auto url = [](const std::string& text, bool tls = false, const std::string& name = "") {
    const auto address = ParseMetricsAddress(text, tls, name);
    return address.ok() ? address->url + " " + address->connect_to : "-";
  };
  EXPECT_EQ(url("10.0.0.7:1234"), "http://10.0.0.7:1234/metrics ");
  EXPECT_EQ(url("castor"), "http://castor:9464/metrics ");
  EXPECT_EQ(url("castor", true), "https://castor:9464/metrics ");
  EXPECT_EQ(url("[::1]:80"), "http://[::1]:80/metrics ");
  EXPECT_EQ(url("https://proxy.example/castor"), "https://proxy.example/castor ");
  EXPECT_EQ(url("http://castor:80", true), "http://castor:80/metrics ");
  EXPECT_EQ(url("10.0.0.7:1", true, "castor"), "https://castor:1/metrics 10.0.0.7:1");
  EXPECT_EQ(url("[::1]:1", true, "castor"), "https://castor:1/metrics [::1]:1");
  EXPECT_EQ(url("10.0.0.7:1", false, "castor"), "http://10.0.0.7:1/metrics ");
  for (const char* wrong : {"", ":1", "a:b", "a:99999", "a/b", "ftp://a", "file:///etc/passwd"}) {
    EXPECT_EQ(url(wrong), "-") << wrong;
  }
  EXPECT_EQ(ParseMetricsAddress("[::1]:80", false)->host, "::1");
  EXPECT_EQ(ParseMetricsAddress("https://a", false)->port, "443");
}

TEST(MetricsFetcherTest, ReadsAPageAndSendsWhatItHasTo) {
  const CannedServer server(Http("200 OK", "castor_ready 1\n"));
  MetricsAddress address = AddressOf("castor.invalid:1");
  address.connect_to = server.address();
  address.authorization = "Bearer right";
  const auto page = AnswerOf(address);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(*page, ElementsAre(Pair("castor_ready", 1)));
  EXPECT_THAT(server.request(), HasSubstr("GET /metrics HTTP/1.1\r\nHost: castor.invalid:1\r\n"));
  EXPECT_THAT(server.request(), HasSubstr("Authorization: Bearer right\r\n"));
  EXPECT_THAT(FetchMetrics(server.address()), ElementsAre(Pair("castor_ready", 1)));
}

TEST(MetricsFetcherTest, RefusalsAreToldApartWithTheirReason) {
  const auto status = [](const std::string& line) {
    return AnswerOf(CannedServer(Http(line, "who are you\n"))).status();
  };
  EXPECT_TRUE(absl::IsUnauthenticated(status("401 Unauthorized")));
  EXPECT_TRUE(absl::IsPermissionDenied(status("403 Forbidden")));
  EXPECT_TRUE(absl::IsUnavailable(status("302 Found")));
  EXPECT_EQ(status("404 Not Found").message(), "HTTP status 404: who are you");
  EXPECT_THAT(FetchMetrics(CannedServer(Http("404 Not Found", "castor_ready 1\n")).address()),
              IsEmpty());
}

TEST(MetricsFetcherTest, EndlessSilentAndMissingServersAreErrors) {
  const CannedServer endless("HTTP/1.1 200 OK\r\n\r\n" + std::string(1 << 20, '#'), true);
  EXPECT_EQ(AnswerOf(endless).status().message(), "the page exceeds 16 MiB");
  const CannedServer silent("");
  EXPECT_THAT(
      std::string(AnswerOf(AddressOf(silent.address()), milliseconds(50)).status().message()),
      HasSubstr("timed out"));
  EXPECT_TRUE(absl::IsUnavailable(AnswerOf(AddressOf("127.0.0.1:1")).status()));
  EXPECT_FALSE(AnswerOf(CannedServer("nonsense\r\n\r\n")).ok());
}

// A kilobyte could expand to gigabytes.
TEST(MetricsFetcherTest, ACompressedPageIsNotInflated) {
  const std::string packed(  // "castor_ready 1\n"
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4b\x4e\x2c\x2e\xc9\x2f\x8a\x2f\x4a\x4d\x4c\xa9\x54"
      "\x30\xe4\x02\x00\x98\xee\x58\xb9\x0f\x00\x00\x00",
      35);
  for (const char* coding : {"gzip", "x-gzip", "deflate", "gzip, chunked", "br"}) {
    const CannedServer server("HTTP/1.1 200 OK\r\ntransfer-encoding:  " + std::string(coding) +
                              "\r\nConnection: close\r\n\r\n" + packed);
    EXPECT_EQ(AnswerOf(server).status().message(),
              "the page is compressed, which was not asked for")
        << coding;
  }
  const CannedServer content("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + packed);
  EXPECT_FALSE(AnswerOf(content).ok());
  const CannedServer chunked(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\nf\r\ncastor_ready 1\n\r\n0\r\n\r\n");
  const auto whole = AnswerOf(chunked);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_THAT(*whole, ElementsAre(Pair("castor_ready", 1)));
}

TEST(MetricsFetcherTest, ASlowServerDelaysNoOther) {
  const CannedServer silent(""), quick(Http("200 OK", "castor_ready 1\n"));
  MetricsFetcher fetcher({}, milliseconds(60'000));
  bool answered = false;
  fetcher.Start(AddressOf(silent.address()), [](const auto&) { ADD_FAILURE(); });
  fetcher.Start(AddressOf(quick.address()), [&](const auto&) { answered = true; });
  while (!answered) fetcher.Wait(milliseconds(60'000));
  EXPECT_TRUE(fetcher.pending());
}

}  // namespace
}  // namespace castor::client
