// The view of servers that count, restart, vanish, refuse, and are no castor-servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/top/fleet.h"
#include "client/top/frame.h"
#include "tests/unit/client/canned_server.h"

namespace castor::top {
namespace {

using client::CannedServer;
using client::Http;
using client::ParseMetrics;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr cli::Screen Plain(size_t columns, size_t rows = 0) {
  return {.columns = columns, .rows = rows, .color = false};
}

std::string Text(const View& view, const cli::Screen& screen) {
  std::string text;
  for (const std::string& line : FrameLines(view, screen)) text += line + "\n";
  return text;
}

// A page of a server that answered `ok` calls, half of them within 0.1 s and the rest within 0.2 s.
// The failed ones named no loaded model.
std::string Page(int ok, int failed = 0, const std::string& more = "") {
  const auto number = [](int value) { return " " + std::to_string(value) + "\n"; };
  const std::string labels = "{method=\"encode\",model=\"minilm\"";
  const std::string engine = "{model=\"minilm\",operation=\"encode\"";
  const std::string bucket = "castor_request_duration_seconds_bucket" + labels;
  return "castor_ready 1\nprocess_start_time_seconds 1000\n"
         "castor_requests_total" +
         labels + ",code=\"OK\"}" + number(ok) +
         "castor_requests_total{code=\"RESOURCE_EXHAUSTED\",method=\"encode\",model=\"other\"}" +
         number(failed) +
         "castor_requests_total{code=\"OK\",kernel=\"none\",method=\"get_server_info\"} 5\n" +
         bucket + ",le=\"0.1\"}" + number(ok / 2) + bucket + ",le=\"0.2\"}" + number(ok) + bucket +
         ",le=\"+Inf\"}" + number(ok) + "castor_tokens_total" + engine + "}" + number(100 * ok) +
         "castor_batch_requests_count" + engine + "}" + number(ok / 4) +
         "castor_batch_requests_sum" + engine + "}" + number(ok) +
         "castor_stage_duration_seconds_sum" + engine + ",phase=\"compute\"}" + number(ok / 80) +
         "castor_tenant_compute_seconds_total{tenant=\"acme\"}" + number(ok / 80) +
         "castor_rejected_total{reason=\"QUEUE_FULL\"}" + number(failed) +
         "castor_saturation_ratio 0.74\ncastor_queue_depth 12\n"
         "castor_queued_seconds 0.36\ncastor_queued_seconds_limit 30\n"
         "castor_inflight_requests 14\ncastor_queue_limit{unit=\"requests\"} 1024\n"
         "process_resident_memory_bytes 4e8\ncastor_device_memory_allocated_bytes 9e8\n"
         "castor_model_weights_bytes{device=\"cpu\",model=\"minilm\"} 9e7\n" +
         more;
}

ServerView Server(const std::string& name, const std::string& before, const std::string& after) {
  const auto page = ParseMetrics(before);
  return {.name = name, .rates = RatesOf(&page, ParseMetrics(after), 2)};
}

TEST(TopTest, OneServerOn80Columns) {
  const View view = {.servers = {Server("10.0.0.7:9464", Page(0), Page(160, 5))},
                     .clock = "12:34:56"};
  EXPECT_EQ("\n" + Text(view, Plain(80)), R"(
castor top   1 of 1 ready   12:34:56
               REQ/S      P50      P99  ERR/S  QUEUE BATCH  BUSY     MEMORY
10.0.0.7:9464   80.0   100 ms   198 ms   2.50     12   4.0  100%  381.5 MiB
encode -           0        -        -   2.50      -     -    0%          -
encode minilm   80.0   100 ms   198 ms      0      -   4.0  100%          -
tenant acme        -        -        -      -      -     -  100%          -
load     queued 360 ms of 30.0 s   requests 14 of 1,024
errors   RESOURCE_EXHAUSTED 2.50/s (5)
refused  QUEUE_FULL 2.50/s (5)
memory   device 858.3 MiB   weights of minilm 85.8 MiB
)");
}

TEST(TopTest, SeveralServersAreSummed) {
  const std::string drains = "castor_draining 1\n";
  const View view = {.servers = {Server("10.0.0.7:9464", Page(0), Page(160, 5)),
                                 Server("10.0.0.8:9464", Page(80), Page(160, 0, drains)),
                                 {.name = "10.0.0.9:9464", .error = "Connection refused"},
                                 {.name = "[2001:db8::17]:9464"}},
                     .clock = "12:34:56",
                     .now = 4600};
  EXPECT_EQ("\n" + Text(view, Plain(140)), R"(
castor top   1 of 4 ready   12:34:56
                        REQ/S      P50      P99  ERR/S  QUEUE BATCH  BUSY     MEMORY  TOK/S  LOAD        UP
10.0.0.7:9464            80.0   100 ms   198 ms   2.50     12   4.0  100%  381.5 MiB  8.00k   74%   1:00:00
10.0.0.8:9464 draining   40.0   100 ms   198 ms      0     12   4.0   50%  381.5 MiB  4.00k   74%   1:00:00
10.0.0.9:9464 unreachable: Connection refused
[2001:db8::17]:9464 not read yet
all                       120   100 ms   198 ms   2.50     24   4.0   75%  762.9 MiB  12.0k   74%         -
encode -                    0        -        -   2.50      -     -    0%          -      0     -         -
encode minilm             120   100 ms   198 ms      0      -   4.0   75%          -  12.0k     -         -
tenant acme                 -        -        -      -      -     -   75%          -      -     -         -
load     queued 360 ms of 30.0 s   requests 28 of 2,048
errors   RESOURCE_EXHAUSTED 2.50/s (5)
refused  QUEUE_FULL 2.50/s (5)
memory   device 1.7 GiB   weights of minilm 171.7 MiB
)");
}

// Encoders have a row for each model, whichever kernel ran, attention for each kernel. Device time
// counts for an encoder even if Encode is never called.
TEST(TopTest, EncodersHaveARowForEachModelAndAttentionForEachKernel) {
  const auto counter = [](const std::string& series, int value) {
    return series + "} " + std::to_string(value) + "\n";
  };
  const std::string bucket = "castor_request_duration_seconds_bucket{";
  const std::string page =
      counter(bucket + "method=\"encode\",model=\"e5\",le=\"0.1\"", 0) +
      counter(bucket + "method=\"tei\",model=\"e5\",le=\"0.1\"", 8) +
      counter(bucket + "kernel=\"vanilla\",method=\"attend\",le=\"0.1\"", 4) +
      counter("castor_requests_total{code=\"OK\",method=\"tei\",model=\"e5\"", 8) +
      counter("castor_requests_total{code=\"INTERNAL\",method=\"tei\",model=\"e5\"", 2) +
      counter("castor_requests_total{code=\"OK\",kernel=\"vanilla\",method=\"attend\"", 4) +
      counter("castor_requests_total{code=\"INTERNAL\",kernel=\"none\",method=\"attend\"", 2) +
      counter("castor_batch_requests_count{model=\"e5\",operation=\"encode\"", 1) +
      counter("castor_batch_requests_sum{model=\"e5\",operation=\"encode\"", 2) +
      counter(
          "castor_stage_duration_seconds_sum{model=\"e5\",operation=\"encode\",phase="
          "\"compute\"",
          1);
  const std::string text = Text({.servers = {Server("a", "", page)}}, Plain(80));
  EXPECT_THAT(text,
              HasSubstr("\nattend -            0        -        -   1.00      -     -    0%"));
  EXPECT_THAT(text,
              HasSubstr("\nattend vanilla   2.00  50.0 ms  99.0 ms      0      -     -    0%"));
  EXPECT_THAT(text,
              HasSubstr("\nencode e5           0        -        -      0      -   2.0   50%"));
  EXPECT_THAT(text,
              HasSubstr("\ntei e5           4.00  50.0 ms  99.0 ms   1.00      -     -    0%"));
}

TEST(TopTest, RowsAreCutWhereTheScreenEnds) {
  View view;
  for (int i = 1; i <= 9; ++i) {
    view.servers.push_back(Server("server " + std::to_string(i), Page(0), Page(80 * i)));
  }
  const auto lines = FrameLines(view, Plain(80, 12));
  EXPECT_EQ(lines.size(), 12U);
  EXPECT_EQ(lines[7].substr(0, 10), "and 7 more");
  EXPECT_THAT(lines[11], HasSubstr("memory "));
}

TEST(TopTest, ValuesBeyondTheLastBucketAreMarked) {
  const std::string bucket = "castor_request_duration_seconds_bucket{kernel=\"k\",method=\"m\",le=";
  View view = {
      .servers = {Server("a", "",
                         "castor_requests_total{kernel=\"k\",method=\"m\",code=\"OK\"} 9\n" +
                             bucket + "\"1\"} 1\n" + bucket + "\"NaN\"} 4\n" + bucket +
                             "\"+Inf\"} 9\ncastor_queue_depth NaN\n"
                             "castor_device_healthy 0\n")}};
  EXPECT_THAT(
      Text(view, Plain(80)),
      AllOf(HasSubstr("\na device failed   4.50  >1.00 s  >1.00 s      0      -     -    0% "),
            HasSubstr("load     none\n"), HasSubstr("memory   none\n")));
}

TEST(TopTest, ARestartIsNotCounted) {
  const auto before = ParseMetrics(Page(100));
  auto after = ParseMetrics(Page(140));
  EXPECT_TRUE(RatesOf(&before, after, 1).compared);
  after["process_start_time_seconds"] += 60;
  EXPECT_FALSE(RatesOf(&before, after, 1).compared) << "though its counters have grown";
  auto unstated = before, fallen = ParseMetrics(Page(50));
  unstated.erase("process_start_time_seconds");
  fallen.erase("process_start_time_seconds");
  EXPECT_FALSE(RatesOf(&unstated, fallen, 1).compared);
  EXPECT_THAT(Text({.servers = {{.name = "a", .rates = RatesOf(nullptr, after, 1)}}}, Plain(80)),
              HasSubstr("encode minilm      -        -        -      -"));
}

std::unique_ptr<Fleet> Watch(const std::string& address, client::ClientOptions options = {}) {
  auto fleet = Fleet::Create({address}, std::move(options));
  EXPECT_TRUE(fleet.ok()) << fleet.status();
  return *std::move(fleet);
}

ServerView Round(Fleet& fleet) {
  fleet.StartRound();
  while (!fleet.IsRoundComplete()) fleet.Wait(std::chrono::milliseconds(1000));
  return fleet.servers().at(0);
}

TEST(FleetTest, AServerThatVanishesHasNoFigures) {
  CannedServer server(Http("200 OK", Page(100)));
  const auto fleet = Watch(server.address());
  EXPECT_FALSE(Round(*fleet).rates->compared);
  server.Answer(Http("503 Service Unavailable", "later"));
  const ServerView gone = Round(*fleet);
  EXPECT_FALSE(gone.rates.has_value());
  EXPECT_EQ(gone.error, "HTTP status 503: later");
  server.Answer(Http("200 OK", Page(120)));
  const ServerView back = Round(*fleet);
  EXPECT_TRUE(back.rates->compared);
  EXPECT_EQ(fleet->Problem(), "");
  EXPECT_TRUE(fleet->HasEverRead());
}

TEST(FleetTest, AnotherPageIsAnError) {
  const CannedServer server(Http("200 OK", "go_goroutines 8\n"));
  const auto fleet = Watch(server.address());
  EXPECT_THAT(Round(*fleet).error, HasSubstr("not the /metrics of a castor-server"));
  EXPECT_FALSE(fleet->HasEverRead());
  EXPECT_THAT(fleet->Problem(), HasSubstr(server.address()));
}

TEST(FleetTest, ATokenTravelsToThisMachine) {
  const CannedServer server(Http("200 OK", Page(100)));
  client::ClientOptions options;
  options.token = "secret";
  (void)Round(*Watch(server.address(), options));
  EXPECT_THAT(server.request(), HasSubstr("Authorization: Bearer secret\r\n"));
}

TEST(FleetTest, ANameIsLookedUp) {
  const CannedServer server(Http("200 OK", Page(100)));
  EXPECT_TRUE(Round(*Watch("localhost" + server.address().substr(9))).rates.has_value());
  const auto nobody = Watch("castor.invalid");
  EXPECT_EQ(Round(*nobody).name, "castor.invalid");
  EXPECT_THAT(nobody->Problem(), HasSubstr("castor.invalid: Could not resolve"));
}

}  // namespace
}  // namespace castor::top
