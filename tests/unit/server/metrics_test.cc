#include "server/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "server/metrics/load_report.h"
#include "server/metrics/metrics_endpoint.h"
#include "tests/support/fake_engine.h"
#include "tests/unit/server/http_client.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace castor::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::xds::data::orca::v3::OrcaLoadReport;

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

OrcaLoadReport Parse(const std::string& bytes) {
  OrcaLoadReport report;
  EXPECT_TRUE(report.ParseFromString(bytes));
  EXPECT_EQ(report.GetReflection()->GetUnknownFields(report).field_count(), 0);
  return report;
}

class LoadMeterTest : public testing::Test {
 protected:
  // A look 100 ms later, in which the device was busy for `busy` seconds and answered.
  void Look(double busy, uint64_t answered, uint64_t failed = 0) {
    now_ += milliseconds(100);
    sample_.busy_seconds += busy;
    sample_.answered += answered;
    sample_.failed += failed;
    meter_.Update(sample_, now_);
  }
  OrcaLoadReport Report() const { return Parse(meter_.Report()); }

  TimePoint now_{hours(1)};
  LoadSample sample_{.busy_seconds = 1000, .answered = 5000, .failed = 70};
  LoadMeter meter_{sample_, now_};
};

TEST_F(LoadMeterTest, BeginsIdleWhateverWasCountedBefore) {
  EXPECT_EQ(Report().application_utilization(), 0);
  EXPECT_EQ(Report().rps_fractional(), 0);
  EXPECT_EQ(Report().eps(), 0);
}

TEST_F(LoadMeterTest, TellsRatesAndTheBusyShare) {
  for (int look = 0; look < 100; ++look) Look(0.04, 20, 3);
  EXPECT_THAT(Report().application_utilization(), DoubleNear(0.4, 1e-3));
  EXPECT_THAT(Report().rps_fractional(), DoubleNear(230, 0.1));
  EXPECT_THAT(Report().eps(), DoubleNear(30, 0.1));
}

// What the balancer divides must not depend on how long the load has lasted.
TEST_F(LoadMeterTest, RequestsByUtilizationIsTheCapacityFromTheStart) {
  for (int look = 0; look < 30; ++look) {
    Look(0.04, 20);
    const OrcaLoadReport report = Report();
    EXPECT_THAT(report.rps_fractional() / report.application_utilization(), DoubleNear(500, 1e-6));
  }
}

TEST_F(LoadMeterTest, ForgetsWithinSeconds) {
  for (int look = 0; look < 100; ++look) Look(0.1, 20);
  for (int look = 0; look < 10; ++look) Look(0, 0);
  EXPECT_THAT(Report().application_utilization(), DoubleNear(std::exp(-1), 1e-3));
  now_ += hours(1);
  Look(0, 0);
  EXPECT_THAT(Report().application_utilization(), DoubleNear(0, 1e-9));
}

TEST_F(LoadMeterTest, WaitingWorkCountsOnTopAndTheRestStaysInBounds) {
  for (int look = 0; look < 100; ++look) Look(0.1, 20);
  sample_.queued_seconds = 5;
  sample_.memory_share = 1.5;
  Look(0.1, 20);
  EXPECT_THAT(Report().application_utilization(), DoubleNear(2, 1e-3));
  EXPECT_EQ(Report().named_metrics().at("castor_queued_seconds"), 5);
  EXPECT_EQ(Report().mem_utilization(), 1);
  sample_.queued_seconds = -1;
  sample_.memory_share = -1;
  Look(0.1, 20);
  EXPECT_THAT(Report().application_utilization(), DoubleNear(1, 1e-3));
  EXPECT_EQ(Report().mem_utilization(), 0);
}

TEST_F(LoadMeterTest, ALongBatchIsNoMoreThanBusy) {
  for (int look = 0; look < 20; ++look) Look(0, 0);
  Look(2, 1);  // began two seconds ago
  for (int look = 0; look < 19; ++look) {
    Look(0, 0);
    EXPECT_LE(Report().application_utilization(), 1);
  }
  EXPECT_THAT(Report().application_utilization(), DoubleNear(1 - std::exp(-2), 1e-3));
  Look(1e9, 1);
  for (int look = 0; look < 101; ++look) Look(0, 0);
  EXPECT_LT(Report().application_utilization(), 1 - 1e-3) << "bounded, whatever was counted";
}

TEST_F(LoadMeterTest, CountsThatFallAndAClockThatStandsDoNoHarm) {
  meter_.Update({}, now_);
  EXPECT_EQ(Report().application_utilization(), 0);
  meter_.Update({}, now_ + seconds(1));
  EXPECT_EQ(Report().application_utilization(), 0);
  EXPECT_EQ(Report().rps_fractional(), 0);
}

TEST(LoadOfTest, SumsTheEnginesCounts) {
  EngineStats stats;
  stats.work.resize(2);
  stats.work[0].requests = {{"vanilla", 3}};
  stats.work[0].compute_seconds.sum = 1.5;
  stats.work[1].requests = {{"vanilla", 3}, {"clustered", 1}};
  stats.work[1].compute_seconds.sum = 2;
  stats.load.queued_seconds = 0.25;
  stats.load.device_bytes = 10;
  stats.load.max_device_bytes = 40;
  for (const Reason reason :
       {Reason::kQueueFull, Reason::kOutOfMemory, Reason::kDeadlineExceeded, Reason::kInternal}) {
    stats.refusals.push_back({reason, 10});
  }
  for (const Reason reason : {Reason::kInvalidField, Reason::kTooLarge, Reason::kCancelled,
                              Reason::kModelNotFound, Reason::kDraining}) {
    stats.refusals.push_back({reason, 1});
  }
  const LoadSample sample = LoadOf(stats);
  EXPECT_EQ(sample.answered, 7U);
  EXPECT_EQ(sample.busy_seconds, 3.5);
  EXPECT_EQ(sample.queued_seconds, 0.25);
  EXPECT_EQ(sample.memory_share, 0.25);
  EXPECT_EQ(sample.failed, 40U);
  EXPECT_EQ(LoadOf({}).memory_share, 0) << "no bound is known";
}

TEST(LoadReportsTest, SamplesAtMostOnceInAHundredMilliseconds) {
  int samples = 0;
  const TimePoint start{hours(1)};
  LoadReports reports(
      [&] {
        ++samples;
        return LoadSample{.queued_seconds = static_cast<double>(samples)};
      },
      start);
  const auto queued = [&](milliseconds after) {
    return Parse(reports.Trailer(start + after)).named_metrics().at("castor_queued_seconds");
  };
  EXPECT_EQ(queued(milliseconds(0)), 1);
  EXPECT_EQ(queued(milliseconds(99)), 1);
  EXPECT_EQ(queued(milliseconds(100)), 2);
  EXPECT_EQ(queued(milliseconds(199)), 2);
  EXPECT_EQ(queued(seconds(3600)), 3);
  EXPECT_EQ(queued(seconds(3600)), 3);
  EXPECT_EQ(samples, 3);
}

TEST(LoadReportsTest, ThreadsSeeWholeReportsAndOneSamples) {
  std::atomic<int> sampling = 0;
  std::atomic<bool> overlapped = false;
  const TimePoint start{hours(1)};
  LoadReports reports(
      [&] {
        if (++sampling > 1) overlapped = true;
        std::this_thread::yield();
        --sampling;
        return LoadSample{.queued_seconds = 2};
      },
      start);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int call = 0; call < 500; ++call) {
        const OrcaLoadReport report = Parse(reports.Trailer(start + milliseconds(60 * call)));
        EXPECT_EQ(report.named_metrics().at("castor_queued_seconds"), 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(overlapped);
}

}  // namespace
}  // namespace castor::server
