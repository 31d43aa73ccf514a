// Reading of pages from servers that answer well, badly, late, or without end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/metrics/fetch.h"
#include "client/top/resolver.h"
#include "tests/unit/client/canned_server.h"

namespace castor::client {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

MetricsAnswer AnswerOf(const MetricsRequest& request,
                       milliseconds patience = milliseconds(20'000)) {
  MetricsFetcher fetcher({}, patience);
  fetcher.Start(7, request);
  while (fetcher.pending() > 0) {
    for (MetricsAnswer& answer : fetcher.Wait(milliseconds(1000))) return std::move(answer);
  }
  return {.id = 0, .page = absl::InternalError("none"), .when = {}};
}

MetricsAnswer AnswerOf(const CannedServer& server) {
  return AnswerOf({.url = "http://" + server.address() + "/metrics"});
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
  const MetricsAnswer answer = AnswerOf({.url = "http://castor.invalid:1/metrics",
                                         .connect_to = server.address(),
                                         .authorization = "Bearer right"});
  ASSERT_TRUE(answer.page.ok()) << answer.page.status();
  EXPECT_THAT(*answer.page, ElementsAre(Pair("castor_ready", 1)));
  EXPECT_EQ(answer.id, 7u);
  EXPECT_THAT(server.request(), HasSubstr("GET /metrics HTTP/1.1\r\nHost: castor.invalid:1\r\n"));
  EXPECT_THAT(server.request(), HasSubstr("Authorization: Bearer right\r\n"));
  EXPECT_THAT(FetchMetrics(server.address()), ElementsAre(Pair("castor_ready", 1)));
}

TEST(MetricsFetcherTest, RefusalsAreToldApartWithTheirReason) {
  const auto status = [](const std::string& line) {
    return AnswerOf(CannedServer(Http(line, "who are you\n"))).page.status();
  };
  EXPECT_TRUE(absl::IsUnauthenticated(status("401 Unauthorized")));
  EXPECT_TRUE(absl::IsPermissionDenied(status("403 Forbidden")));
  EXPECT_TRUE(absl::IsUnavailable(status("302 Found")));
  EXPECT_EQ(status("404 Not Found").message(), "HTTP status 404: who are you");
  EXPECT_THAT(FetchMetrics(CannedServer(Http("404 Not Found", "castor_ready 1\n")).address()),
              IsEmpty());
}

TEST(MetricsFetcherTest, APageWithoutEndIsGivenUp) {
  const CannedServer server("HTTP/1.1 200 OK\r\n\r\n" + std::string(1 << 20, '#'), true);
  const MetricsAnswer answer = AnswerOf(server);
  EXPECT_EQ(answer.page.status().message(), "a page of more than 16 MiB");
}

TEST(MetricsFetcherTest, ASilentServerAndNoneAreErrors) {
  const CannedServer silent("");
  const MetricsRequest request{.url = "http://" + silent.address() + "/metrics"};
  EXPECT_THAT(std::string(AnswerOf(request, milliseconds(50)).page.status().message()),
              HasSubstr("timed out"));
  EXPECT_TRUE(absl::IsUnavailable(AnswerOf({.url = "http://127.0.0.1:1/metrics"}).page.status()));
  EXPECT_FALSE(AnswerOf(CannedServer("nonsense\r\n\r\n")).page.ok());
}

TEST(MetricsFetcherTest, OneThatIsSlowHoldsNobodyUp) {
  const CannedServer silent(""), quick(Http("200 OK", "castor_ready 1\n"));
  MetricsFetcher fetcher({}, milliseconds(60'000));
  fetcher.Start(1, {.url = "http://" + silent.address() + "/metrics"});
  fetcher.Start(2, {.url = "http://" + quick.address() + "/metrics"});
  std::vector<MetricsAnswer> answers;
  while (answers.empty()) answers = fetcher.Wait(milliseconds(60'000));
  EXPECT_EQ(answers[0].id, 2u);
  EXPECT_EQ(fetcher.pending(), 1u);
}

TEST(ResolverTest, FindsOutWhetherANameIsOneServer) {
  top::Resolver resolver;
  const auto look_up = [&](const std::string& host) {
    resolver.Start(host, "9464");
    for (;;) {
      if (auto result = resolver.Poll()) return *std::move(result);
      std::this_thread::yield();
    }
  };
  const auto local = look_up("localhost");
  ASSERT_TRUE(local.ok()) << local.status();
  EXPECT_THAT(*local, IsEmpty()) << "an address of each family is one server";
  EXPECT_FALSE(look_up("no such name").ok());
  EXPECT_FALSE(resolver.pending());
  EXPECT_TRUE(top::IsNumericHost("::1"));
  EXPECT_FALSE(top::IsNumericHost("localhost"));
  resolver.Start("castor.invalid", "9464");  // and goes while it looks
}

}  // namespace
}  // namespace castor::client
