#include "server/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "server/metrics/metrics_endpoint.h"
#include "tests/support/fake_engine.h"
#include "tests/unit/server/http_client.h"

namespace castor::server {
namespace {

using ::testing::HasSubstr;

// From series (name and labels as printed) to value.
std::map<std::string, double> SeriesOf(const std::string& page) {
  std::map<std::string, double> series;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    series[line.substr(0, space)] = std::strtod(line.c_str() + space + 1, nullptr);
  }
  return series;
}

// The sum of the series whose name and labels contain all of `parts`.
double Sum(const std::map<std::string, double>& series, const std::vector<std::string>& parts) {
  double sum = 0;
  bool found = false;
  for (const auto& [name, value] : series) {
    bool all = true;
    for (const std::string& part : parts) all = all && name.find(part) != std::string::npos;
    if (all) sum += value;
    found = found || all;
  }
  return found ? sum : std::numeric_limits<double>::quiet_NaN();
}

WorkStats SomeWork() {
  WorkStats work;
  work.operation = "attend";
  work.kernel = "vanilla";
  work.requests = {{"vanilla", 0}};
  const std::vector<double> bounds = {0.001, 0.01};
  for (HistogramSnapshot* snapshot :
       {&work.queue_seconds, &work.copy_in_seconds, &work.compute_seconds, &work.copy_out_seconds,
        &work.batch_requests, &work.batch_tokens}) {
    *snapshot = {bounds, {0, 0, 0}, 0};
  }
  return work;
}

// A call is in flight until its answer has been sent, not just until the answer is known.
TEST(Metrics, CallsAreInFlightUntilTheirAnswersHaveLeft) {
  FakeEngine engine;
  Metrics metrics(engine);
  const std::string inflight = "castor_inflight_calls{method=\"attend\"}";
  metrics.Started(Method::kAttend);
  metrics.ReceivedBytes(Method::kAttend, 1000);
  metrics.SentBytes(Method::kAttend, 300);
  metrics.Finished(Method::kAttend, {KernelName::kVanilla}, grpc::StatusCode::OK, 0.005);
  EXPECT_EQ(SeriesOf(metrics.Page()).at(inflight), 1);
  metrics.AnswerLost(Method::kAttend);
  metrics.Ended(Method::kAttend);
  const auto series = SeriesOf(metrics.Page());
  EXPECT_EQ(series.at(inflight), 0);
  EXPECT_EQ(series.at("castor_received_bytes_total{method=\"attend\"}"), 1000);
  EXPECT_EQ(series.at("castor_sent_bytes_total{method=\"attend\"}"), 300);
  const std::string bucket = "castor_request_duration_seconds_bucket";
  EXPECT_EQ(Sum(series, {bucket, "attend", "vanilla", "le=\"0.004\""}), 0);
  EXPECT_EQ(Sum(series, {bucket, "attend", "vanilla", "le=\"0.006\""}), 1);
  EXPECT_EQ(series.at("castor_answers_lost_total{method=\"attend\"}"), 1);
}

TEST(Metrics, AStallTakesReadinessAwayUntilItEnds) {
  FakeEngine engine;
  Metrics metrics(engine);
  metrics.SetReady(true);
  EXPECT_EQ(SeriesOf(metrics.Page()).at("castor_engine_stalled"), 0);
  metrics.SetStalled(true);
  EXPECT_EQ(SeriesOf(metrics.Page()).at("castor_engine_stalled"), 1);
  EXPECT_EQ(SeriesOf(metrics.Page()).at("castor_ready"), 0);
  metrics.SetStalled(false);
  EXPECT_EQ(SeriesOf(metrics.Page()).at("castor_ready"), 1);
  metrics.SetStalled(true);
  metrics.SetReady(false);  // a drain
  metrics.SetStalled(false);
  EXPECT_EQ(SeriesOf(metrics.Page()).at("castor_ready"), 0);
}

TEST(Metrics, OddDurationsKernelsAndCodesDoNoHarm) {
  FakeEngine engine;
  Metrics metrics(engine);
  metrics.Finished(Method::kEncode, {KernelName::kVanilla, 0}, grpc::StatusCode::OK, std::nan(""));
  metrics.Finished(Method::kEncode, {KernelName::kVanilla, 0}, grpc::StatusCode::OK, -1);
  metrics.Finished(Method::kEncode, {KernelName::kCast, 0}, grpc::StatusCode::DATA_LOSS, 0.1);
  metrics.Finished(Method::kAttend, {KernelName::kCast}, grpc::StatusCode::OK, 0.1);
  metrics.ReceivedBytes(Method::kOther, 10);
  metrics.SentBytes(Method::kOther, 10);
  const auto series = SeriesOf(metrics.Page());
  EXPECT_EQ(series.at("castor_request_duration_seconds_sum{method=\"encode\",model=\"tiny\"}"), 0);
  EXPECT_EQ(series.at("castor_requests_total{code=\"UNKNOWN\",method=\"encode\",model=\"other\"}"),
            1);
  EXPECT_EQ(series.at("castor_requests_total{code=\"OK\",kernel=\"none\",method=\"attend\"}"), 1)
      << "a kernel that the engine does not have";
}

TEST(Metrics, TheEngineIsSampledAtEachScrape) {
  FakeEngine engine;
  const Metrics metrics(engine);
  engine.fixed_stats().work = {SomeWork()};
  engine.fixed_stats().work[0].tokens = 77;
  engine.fixed_stats().work[0].compute_seconds = {{0.001, 0.01}, {3, 2, 1}, 0.5};
  engine.fixed_stats().load.queued_requests = 4;
  engine.fixed_stats().load.max_bytes = 1 << 20;
  engine.fixed_stats().load.device_bytes = 3000;
  engine.fixed_stats().load.max_device_bytes = 4000;
  engine.fixed_stats().device_healthy = false;
  const auto series = SeriesOf(metrics.Page());
  EXPECT_EQ(series.at("castor_tokens_total{kernel=\"vanilla\",operation=\"attend\"}"), 77);
  EXPECT_EQ(series.at("castor_queue_depth"), 4);
  EXPECT_EQ(series.at("castor_queue_limit{unit=\"bytes\"}"), 1 << 20);
  EXPECT_EQ(series.at("castor_device_memory_predicted_bytes"), 3000);
  EXPECT_EQ(series.at("castor_device_memory_limit_bytes"), 4000);
  EXPECT_EQ(series.at("castor_device_healthy"), 0);
  const std::string bucket = "castor_stage_duration_seconds_bucket";
  EXPECT_EQ(Sum(series, {bucket, "phase=\"compute\"", "le=\"0.001\""}), 3);
  EXPECT_FALSE(std::isfinite(Sum(series, {bucket, "phase=\"compute\"", "le=\"0.01\""})))
      << "every other bound is left out";
  EXPECT_EQ(Sum(series, {bucket, "phase=\"compute\"", "le=\"+Inf\""}), 6);
  EXPECT_EQ(Sum(series, {"castor_stage_duration_seconds_count", "phase=\"compute\""}), 6);
}

TEST(Metrics, ErrorsAndChoicesAreThereForTheKernelsThatHaveThem) {
  FakeEngine engine;
  WorkStats vanilla = SomeWork();
  vanilla.automatic_requests = 3;
  WorkStats clustered = SomeWork();
  clustered.kernel = "clustered";
  clustered.automatic_requests = 5;
  clustered.automatic_rejected = 2;
  clustered.relative_error = {{0.01, 0.1}, {4, 2, 1}, 0.5};
  WorkStats cast = SomeWork();
  cast.kernel = "cast";
  WorkStats encode = SomeWork();
  encode.operation = "encode";
  encode.kernel = "";
  encode.model = "tiny";
  encode.requests = {{"vanilla", 2}, {"improved_clustered", 7}};
  engine.fixed_stats().work = {vanilla, clustered, cast, encode};
  engine.fixed_stats().fidelity_seconds = {{0.001, 0.01, 0.1}, {1, 1, 0, 0}, 0.004};
  const Metrics metrics(engine);
  const auto series = SeriesOf(metrics.Page());
  EXPECT_EQ(series.at("castor_automatic_requests_total{kernel=\"vanilla\"}"), 3);
  EXPECT_EQ(series.at("castor_automatic_requests_total{kernel=\"clustered\"}"), 5);
  EXPECT_EQ(series.at("castor_automatic_rejected_total{kernel=\"clustered\"}"), 2);
  EXPECT_FALSE(series.contains("castor_automatic_rejected_total{kernel=\"vanilla\"}"));
  EXPECT_FALSE(series.contains("castor_automatic_requests_total{kernel=\"cast\"}"))
      << "never chosen";
  const std::string error = "castor_attention_relative_error";
  EXPECT_EQ(series.at(error + "_bucket{kernel=\"clustered\",le=\"0.1\"}"), 6);
  EXPECT_EQ(series.at(error + "_count{kernel=\"clustered\"}"), 7);
  EXPECT_EQ(series.at(error + "_sum{kernel=\"clustered\"}"), 0.5);
  EXPECT_FALSE(series.contains(error + "_count{kernel=\"vanilla\"}")) << "it is exact";
  EXPECT_EQ(series.at("castor_fidelity_probe_duration_seconds_count"), 2);
  EXPECT_EQ(series.at("castor_engine_requests_total{kernel=\"improved_clustered\",model=\"tiny\","
                      "operation=\"encode\"}"),
            7);
  EXPECT_TRUE(series.contains("castor_tokens_total{model=\"tiny\",operation=\"encode\"}"));
}

TEST(Metrics, WaitsAreThereByPriority) {
  FakeEngine engine;
  EngineStats& stats = engine.fixed_stats();
  for (size_t level = 0; level < stats.wait_seconds.size(); ++level) {
    stats.wait_seconds[level] = {{1, 2, 3, 4, 5}, {level + 1, 0, 0, 0, 5, 1}, 10};
  }
  const Metrics metrics(engine);
  const auto series = SeriesOf(metrics.Page());
  const std::string bucket = "castor_wait_duration_seconds_bucket";
  EXPECT_EQ(series.at(bucket + "{priority=\"low\",le=\"1.0\"}"), 1);
  EXPECT_EQ(series.at(bucket + "{priority=\"normal\",le=\"1.0\"}"), 2);
  EXPECT_EQ(series.at(bucket + "{priority=\"high\",le=\"1.0\"}"), 3);
  EXPECT_FALSE(series.contains(bucket + "{priority=\"high\",le=\"2.0\"}"));
  EXPECT_FALSE(series.contains(bucket + "{priority=\"high\",le=\"4.0\"}"))
      << "every fourth bound is enough";
  EXPECT_EQ(series.at(bucket + "{priority=\"high\",le=\"5.0\"}"), 8);
  EXPECT_EQ(series.at(bucket + "{priority=\"high\",le=\"+Inf\"}"), 9);
  EXPECT_EQ(series.at("castor_wait_duration_seconds_count{priority=\"low\"}"), 7);
  EXPECT_EQ(series.at("castor_wait_duration_seconds_sum{priority=\"low\"}"), 10);
}

TEST(Metrics, TheProcessDescribesItself) {
  FakeEngine engine;
  const Metrics metrics(engine);
  auto series = SeriesOf(metrics.Page());
  EXPECT_GT(series["process_resident_memory_bytes"], 1e6);
  EXPECT_GE(series.at("castor_heap_used_bytes"), 0);  // a sanitizer has a heap of its own
  EXPECT_GE(series["process_cpu_seconds_total"], 0);
  EXPECT_GE(series["process_threads"], 1);
  EXPECT_GT(series["process_max_fds"], series["process_open_fds"]);
  EXPECT_NEAR(series["process_start_time_seconds"], static_cast<double>(std::time(nullptr)), 3600);

  const double before = series["process_open_fds"];
  const int extra = dup(STDERR_FILENO);
  EXPECT_EQ(SeriesOf(metrics.Page())["process_open_fds"], before + 1);
  close(extra);
}

TEST(Metrics, TheEndpointServesAtAFreePortAndPromtoolFindsNoFault) {
  FakeEngine engine;
  engine.fixed_stats().work = {SomeWork()};
  engine.fixed_stats().refusals = {{Reason::kQueueFull, 3}};
  Metrics metrics(engine);
  Periodic periodic;
  const auto endpoint = MetricsEndpoint::Start(
      "127.0.0.1:0", [&] { return metrics.Page(); }, {}, periodic);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  ASSERT_GT((*endpoint)->port(), 0);
  const std::string response = HttpGet((*endpoint)->port(), "/metrics");
  EXPECT_THAT(response, HasSubstr("200 OK"));
  const size_t body = response.find("\r\n\r\n");
  ASSERT_NE(body, std::string::npos);
  EXPECT_THAT(response, HasSubstr("castor_rejected_total{reason=\"QUEUE_FULL\"} 3"));

  // Each family is printed once: a page with two of the same name is invalid.
  std::set<std::string> types;
  std::istringstream lines(response.substr(body + 4));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# TYPE ")) continue;
    EXPECT_TRUE(types.insert(line).second) << line;
  }

  if (std::system("promtool --version >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "promtool is not installed: the page's style is not checked";
  }
  FILE* promtool = popen("promtool check metrics 2>&1", "w");
  ASSERT_NE(promtool, nullptr);
  fwrite(response.data() + body + 4, 1, response.size() - body - 4, promtool);
  EXPECT_EQ(pclose(promtool), 0) << "promtool check metrics";
}

}  // namespace
}  // namespace castor::server
