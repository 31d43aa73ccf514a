// The endpoint alone, over real sockets, and with malicious clients.

#include "server/metrics/metrics_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/unit/server/http_client.h"

namespace castor::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string APage() { return "a_metric 1\n"; }

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> TryToStart(const std::string& listen,
                                                            MetricsEndpoint::Page page = APage) {
  static Periodic& periodic = *new Periodic;
  return MetricsEndpoint::Start(listen, std::move(page), {}, periodic);
}

std::unique_ptr<MetricsEndpoint> Start(const std::string& listen,
                                       MetricsEndpoint::Page page = APage) {
  auto endpoint = TryToStart(listen, std::move(page));
  EXPECT_TRUE(endpoint.ok()) << endpoint.status();
  return endpoint.ok() ? *std::move(endpoint) : nullptr;
}

std::string Unzip(std::string packed) {
  std::string text(1 << 20, '\0');
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return text;
}

TEST(MetricsEndpointTest, ReadsThePageAtEachScrape) {
  std::atomic<int> scrapes = 0;
  const auto endpoint =
      Start("127.0.0.1:0", [&] { return "scrapes " + std::to_string(++scrapes) + "\n"; });
  ASSERT_GT(endpoint->port(), 0);
  const std::string response = HttpGet(endpoint->port(), "/metrics");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(response, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(response, EndsWith("\r\n\r\nscrapes 1\n"));
  EXPECT_THAT(HttpGet(endpoint->port(), "/metrics?x=y"), EndsWith("scrapes 2\n"));
}

TEST(MetricsEndpointTest, OtherMethodsAndPathsAreRefused) {
  const auto endpoint = Start("127.0.0.1:0");
  const int port = endpoint->port();
  const std::string head = HttpClient(port).Ask("HEAD", "/metrics");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, EndsWith("\r\n\r\n")) << "no body";
  EXPECT_THAT(HttpGet(port, "/"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(HttpGet(port, "/metrics/"), StartsWith("HTTP/1.1 404 "));
  const std::string post = HttpClient(port).Ask("POST", "/metrics");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(post, HasSubstr("Allow: GET, HEAD\r\n"));
  EXPECT_THAT(HttpClient(port).Ask("\x01\x02", "\xff"), Not(HasSubstr("200 OK")));
}

TEST(MetricsEndpointTest, ABodyIsNotWaitedFor) {
  const auto endpoint = Start("127.0.0.1:0");
  HttpClient client(endpoint->port());
  ASSERT_TRUE(
      client.Send("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\nx"));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(HttpGet(endpoint->port(), "/metrics"), HasSubstr("a_metric 1"));
}

// As a client sends what it means for a proxy.
TEST(MetricsEndpointTest, ATargetMayBeAWholeUrl) {
  const auto endpoint = Start("127.0.0.1:0");
  const int port = endpoint->port();
  for (const char* target :
       {"http://host/metrics", "HTTP://host:9464/metrics?x=y", "https://host/metrics"}) {
    EXPECT_THAT(HttpGet(port, target), EndsWith("a_metric 1\n")) << target;
  }
  for (const char* target : {"http://host", "http://host/", "http://host/metrics/",
                             "ftp://h/metrics", "http:/metrics", "metrics", "*"}) {
    EXPECT_THAT(HttpGet(port, target), Not(HasSubstr("a_metric"))) << target;
  }
  EXPECT_THAT(HttpClient(port).Ask("POST", "http://host/metrics"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(HttpGet(port, "/" + std::string(64 << 10, 'a')), StartsWith("HTTP/1.1 431 "));
}

// Where two headers say how long a body is, a proxy in front may read another request than we do.
TEST(MetricsEndpointTest, TwoLengthsOfABodyAreRefused) {
  const auto endpoint = Start("127.0.0.1:0");
  const std::string length = "Content-Length: 5\r\n", chunked = "Transfer-Encoding: chunked\r\n";
  const std::string next = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const char* method : {"GET", "HEAD", "POST", "PUT", "BREW"}) {
    for (const std::string& headers :
         {length + chunked, chunked + length, length + length, length + "Content-Length: 6\r\n",
          chunked + chunked, std::string("Content-Length : 5\r\n"),
          std::string("Transfer-Encoding : chunked\r\n"),
          length + " Transfer-Encoding: chunked\r\n",
          std::string("content-length: 0\r\ntransfer-encoding: identity\r\n")}) {
      HttpClient client(endpoint->port());
      ASSERT_TRUE(client.Send(std::string(method) + " /metrics HTTP/1.1\r\nHost: x\r\n" + headers +
                              "\r\n0\r\n\r\n" + next));
      const std::string answer = client.ReadAll();
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 ")) << method << " " << headers;
      EXPECT_THAT(answer, Not(HasSubstr("a_metric"))) << method << " " << headers;
    }
  }
  EXPECT_THAT(HttpClient(endpoint->port()).Ask("GET", "/metrics", "Content-Length: 0\r\n"),
              EndsWith("a_metric 1\n"));
}

TEST(MetricsEndpointTest, CompressesForThoseWhoAsk) {
  const std::string page(100'000, 'm');
  const auto endpoint = Start("127.0.0.1:0", [&] { return page; });
  const auto ask = [&](const char* method, const std::string& headers) {
    return HttpClient(endpoint->port()).Ask(method, "/metrics", headers);
  };
  for (const char* accept : {"gzip", "deflate, gzip;q=1.0, *;q=0.5", "x, GZIP ; q=0.01"}) {
    const std::string answer = ask("GET", std::string("Accept-Encoding: ") + accept + "\r\n");
    EXPECT_THAT(answer, HasSubstr("Content-Encoding: gzip\r\n")) << accept;
    EXPECT_LT(answer.size(), 2000u);
    EXPECT_EQ(Unzip(answer.substr(answer.find("\r\n\r\n") + 4)), page);
  }
  EXPECT_THAT(ask("HEAD", "Accept-Encoding: gzip\r\n"), HasSubstr("Content-Encoding: gzip\r\n"));
  for (const char* accept : {"", "identity", "gzip;q=0", "gzip; q=0.000", "gzipped", "br"}) {
    const std::string answer = ask("GET", std::string("Accept-Encoding: ") + accept + "\r\n");
    EXPECT_THAT(answer, Not(HasSubstr("Content-Encoding"))) << accept;
    EXPECT_THAT(answer, EndsWith(page)) << accept;
  }
}

TEST(MetricsEndpointTest, ServesIpv6) {
  auto endpoint = TryToStart("[::1]:0");
  if (!endpoint.ok()) GTEST_SKIP() << "no IPv6 here: " << endpoint.status();
  EXPECT_THAT(HttpGet((*endpoint)->port(), "/metrics", AF_INET6), HasSubstr("a_metric 1"));
  EXPECT_FALSE(HttpClient((*endpoint)->port(), AF_INET).connected());
}

TEST(MetricsEndpointTest, TheIpv6WildcardTakesIpv4Too) {
  auto endpoint = TryToStart("[::]:0");
  if (!endpoint.ok()) GTEST_SKIP() << "no IPv6 here: " << endpoint.status();
  EXPECT_THAT(HttpGet((*endpoint)->port(), "/metrics", AF_INET6), HasSubstr("a_metric 1"));
  EXPECT_THAT(HttpGet((*endpoint)->port(), "/metrics", AF_INET), HasSubstr("a_metric 1"));
}

// Half a request used to occupy one of two threads for ten seconds.
TEST(MetricsEndpointTest, HalfRequestsDoNotBlindAScraper) {
  const auto endpoint = Start("127.0.0.1:0");
  std::vector<HttpClient> silent;
  for (int i = 0; i < 200; ++i) {
    silent.emplace_back(endpoint->port());
    ASSERT_TRUE(silent.back().connected());
    if (i % 4 != 0) silent.back().Send("GET /metrics HTTP/1.1\r\nHost:");
    EXPECT_THAT(HttpGet(endpoint->port(), "/metrics"), HasSubstr("a_metric 1")) << i;
  }
}

// It asks after each of them: were several let in between two of its questions, as a busy machine
// may do, it would be the one that has been silent longest.
TEST(MetricsEndpointTest, AScraperThatStaysOutlivesSilentOnes) {
  const auto endpoint = Start("127.0.0.1:0");
  HttpClient scraper(endpoint->port());
  std::vector<HttpClient> silent;
  for (int i = 0; i < 200; ++i) {
    silent.emplace_back(endpoint->port());
    ASSERT_TRUE(scraper.Send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"));
    std::string answer;
    while (!answer.ends_with("a_metric 1\n")) {
      char buffer[1024];
      const ssize_t got = read(scraper.descriptor(), buffer, sizeof(buffer));
      ASSERT_GT(got, 0) << "closed beside " << i << " silent connections";
      answer.append(buffer, static_cast<size_t>(got));
    }
  }
}

TEST(MetricsEndpointTest, StopsAtOnceBesideSilentConnections) {
  for (const char* listen : {"127.0.0.1:0", "0.0.0.0:0", "localhost:0"}) {
    auto endpoint = Start(listen);
    std::vector<HttpClient> silent;
    for (int i = 0; i < 10; ++i) silent.emplace_back(endpoint->port()).Send("GET /");
    ASSERT_THAT(HttpGet(endpoint->port(), "/metrics"), HasSubstr("a_metric 1"));
    const auto before = std::chrono::steady_clock::now();
    endpoint.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(1)) << listen;
  }
}

TEST(MetricsEndpointTest, APageThatCannotBeMadeClosesTheConnection) {
  std::atomic<bool> broken = true;
  const auto endpoint = Start("127.0.0.1:0", [&]() -> std::string {
    if (broken) throw std::runtime_error("no page today");
    return "a_metric 1\n";
  });
  EXPECT_EQ(HttpGet(endpoint->port(), "/metrics"), "");
  broken = false;
  EXPECT_THAT(HttpGet(endpoint->port(), "/metrics"), HasSubstr("a_metric 1"));
}

TEST(MetricsEndpointTest, AnAddressThatCannotBeHadIsAnErrorThatSaysWhy) {
  const auto first = Start("127.0.0.1:0");
  const std::string address = "127.0.0.1:" + std::to_string(first->port());
  const auto error = [](const std::string& listen) {
    return std::string(TryToStart(listen).status().message());
  };
  EXPECT_THAT(error(address), AllOf(HasSubstr(address), HasSubstr("in use")));
  EXPECT_THAT(error("203.0.113.1:0"), HasSubstr("Cannot assign requested address"));
  EXPECT_THAT(error("no.such.host.invalid:0"), HasSubstr("no.such.host.invalid:0: "));
}

}  // namespace
}  // namespace castor::server
