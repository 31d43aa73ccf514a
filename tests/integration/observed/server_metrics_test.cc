// What Prometheus reads from a whole server.

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/escaping.h"
#include "engine/base/error.h"
#include "engine/engine.h"
#include "server/metrics/load_report.h"
#include "tests/integration/server_fixture.h"
#include "tests/integration/trailer_client.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace castor::testing {
namespace {

using std::chrono::milliseconds;
using ::xds::data::orca::v3::OrcaLoadReport;

// The names and labels on the page.
std::set<std::string> SeriesOf(const std::string& page) {
  std::set<std::string> series;
  std::istringstream lines(page.substr(page.find("\r\n\r\n") + 4));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != '#') series.insert(line.substr(0, line.rfind(' ')));
  }
  return series;
}

// With the real engine, one model and every kernel.
class ServerMetricsTest : public ServerTest {
 protected:
  void SetUp() override { StartReal({{"tiny", CASTOR_TINY_MODEL}}, TestOptionsWithMetrics()); }
};

// Every series costs memory and time wherever the pages are collected. We allow 1,100 per server
// and 300 for each model; of them, 700 that are no histogram's.
TEST_F(ServerMetricsTest, FewSeriesPerModelAndNoneAppearsLater) {
  ASSERT_GT(server_->engine().stats().work.size(), 1U);
  const std::set<std::string> before = SeriesOf(Scrape());
  EXPECT_GT(before.size(), 100U);
  EXPECT_LT(before.size(), 1100 + 300);
  EXPECT_LT(std::count_if(before.begin(), before.end(),
                          [](const std::string& series) {
                            const std::string name = series.substr(0, series.find('{'));
                            return !name.ends_with("_bucket") && !name.ends_with("_sum") &&
                                   !name.ends_with("_count");
                          }),
            700);

  AttendCall attend;
  ASSERT_TRUE(attend.Run(*attention_, AttendOf(3)).ok());
  v1::EncodeRequest tokens;
  tokens.mutable_tokens()->add_ids(1);
  Encode(tokens);
  EXPECT_FALSE(CallRaw("/castor.v1.AttentionService/Attend", "\xff").ok());
  EXPECT_FALSE(CallRaw("/castor.v1.ModelService/GetModel", "").ok());
  EXPECT_TRUE(CallRaw("/castor.v1.ServerService/GetServerInfo", "").ok());

  EXPECT_EQ(SeriesOf(Scrape()), before);
  EXPECT_EQ(Metric("castor_requests_total{code=\"OK\",kernel=\"vanilla\",method=\"attend\"}"), 1);
  EXPECT_EQ(Metric("castor_requests_total{code=\"OK\",method=\"encode\",model=\"tiny\"}"), 1);
  EXPECT_EQ(
      Metric("castor_requests_total{code=\"INVALID_ARGUMENT\",kernel=\"none\",method=\"attend\"}"),
      1);
  EXPECT_EQ(Metric("castor_requests_total{code=\"NOT_FOUND\",kernel=\"none\",method=\"other\"}"),
            1);
  EXPECT_EQ(Metric("castor_requests_total{code=\"OK\",kernel=\"none\",method=\"other\"}"), 1);
}

// On every door; and with few series more for each model.
TEST_F(ServerMetricsTest, ModelsAreToldApart) {
  const size_t one = SeriesOf(Scrape()).size();
  StartReal(
      {{"a", CASTOR_HEADS "/cross_encoder"}, {"b", CASTOR_TINY_MODEL}, {"of b", CASTOR_TINY_MODEL}},
      TestOptionsWithMetrics());
  const std::set<std::string> before = SeriesOf(Scrape());
  EXPECT_LT(before.size(), one + 300);
  const auto encode = [&](const std::string& model) {
    v1::EncodeRequest request;
    request.set_model(model);
    request.mutable_tokens()->add_ids(1);
    return Try(request).error_code();
  };
  EXPECT_EQ(encode("b"), grpc::StatusCode::OK);
  EXPECT_EQ(encode("of b"), grpc::StatusCode::OK) << "another name of the same model";
  EXPECT_EQ(encode("nobody's"), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(encode(""), grpc::StatusCode::NOT_FOUND) << "there are two";
  const auto requests = [&](const std::string& code, const std::string& model) {
    return Metric("castor_requests_total{code=\"" + code + "\",method=\"encode\",model=\"" + model +
                  "\"}");
  };
  EXPECT_EQ(requests("OK", "a"), 0);
  EXPECT_EQ(requests("OK", "b"), 2);
  EXPECT_EQ(requests("NOT_FOUND", "other"), 2);
  EXPECT_EQ(Metric("castor_request_duration_seconds_count{method=\"encode\",model=\"b\"}"), 2);
  EXPECT_EQ(Metric("castor_tokens_total{model=\"a\",operation=\"encode\"}"), 0);
  EXPECT_EQ(Metric("castor_tokens_total{model=\"b\",operation=\"encode\"}"), 2);
  EXPECT_EQ(Metric("castor_engine_requests_total{kernel=\"vanilla\",model=\"b\","
                   "operation=\"encode\"}"),
            2);
  EXPECT_EQ(SeriesOf(Scrape()), before);
}

TEST_F(ServerMetricsTest, MemoryIsNamedByWhatHoldsIt) {
  EXPECT_EQ(Metric("castor_model_weights_bytes{model=\"tiny\",device=\"cpu\"}"),
            Metric("castor_device_memory_allocated_bytes"));
  // Starting has run the model and the kernels, without a plan: only requests are predicted.
  EXPECT_EQ(Metric("castor_run_memory_peak_bytes{kind=\"activations\"}"), 0);
  ASSERT_TRUE(Try(AttendOf(3)).ok());
  EXPECT_GT(Metric("castor_run_memory_peak_bytes{kind=\"workspace\"}"), 0);
  EXPECT_EQ(Metric("castor_run_memory_peak_bytes{kind=\"activations\"}"), 0);
  v1::EncodeRequest tokens;
  tokens.mutable_tokens()->add_ids(1);
  Encode(tokens);
  EXPECT_GT(Metric("castor_run_memory_peak_bytes{kind=\"activations\"}"), 0);
  ASSERT_TRUE(AwaitNoBytes());
  EXPECT_EQ(Metric("castor_run_memory_bytes{kind=\"activations\"}"), 0);
  EXPECT_EQ(Metric("castor_message_bytes{direction=\"out\"}"), 0);
}

// The load report in the trailers, over a real socket.

constexpr char kAttend[] = "/castor.v1.AttentionService/Attend";
constexpr char kEncode[] = "/castor.v1.EncoderService/Encode";
constexpr char kOk[] = "0";
constexpr char kExhausted[] = "8";
constexpr char kUnauthenticated[] = "16";

class ServerLoadReportTest : public ServerTest {
 protected:
  static server::ServerOptions Reporting() {
    server::ServerOptions options = TestOptions();
    options.load_reports = true;
    return options;
  }

  // The report that comes with an answer of this status.
  std::optional<OrcaLoadReport> ReportOf(const char* method, const std::string& message,
                                         const std::string& status) {
    fields_ = TrailerClient(server_->port()).Call(method, message);
    EXPECT_EQ(fields_.count("grpc-status"), 1U);
    EXPECT_EQ(fields_.find("grpc-status")->second, status);
    EXPECT_LE(fields_.count(server::kLoadReportTrailer), 1U);
    const auto found = fields_.find(server::kLoadReportTrailer);
    if (found == fields_.end()) return std::nullopt;
    std::string bytes;
    EXPECT_TRUE(absl::Base64Unescape(found->second, &bytes)) << found->second;
    OrcaLoadReport report;
    EXPECT_TRUE(report.ParseFromString(bytes));
    return report;
  }

  const std::string attend_ = AttendOf(1).SerializeAsString();
  Fields fields_;  // of the last answer
};

TEST_F(ServerLoadReportTest, IsOffByDefault) {
  StartServer();
  EXPECT_FALSE(ReportOf(kAttend, attend_, kOk).has_value());
  engine_->RefuseWith(QueueFull("full", std::chrono::milliseconds(250)));
  EXPECT_FALSE(ReportOf(kAttend, attend_, kExhausted).has_value());
}

TEST_F(ServerLoadReportTest, ComesWithEveryAnswer) {
  StartServer(Reporting());
  for (int call = 0; call < 3; ++call) {
    EXPECT_TRUE(ReportOf(kAttend, attend_, kOk).has_value());
    EXPECT_TRUE(ReportOf(kEncode, EncodeOf({"one"}).SerializeAsString(), kOk).has_value());
  }
}

TEST_F(ServerLoadReportTest, ComesWithRefusalsBesideTheirDetails) {
  StartServer(Reporting());
  const absl::Status full = QueueFull("full", std::chrono::milliseconds(250));
  for (const bool at_admission : {true, false}) {
    engine_->RefuseWith(at_admission ? full : absl::OkStatus());
    engine_->FailWith(at_admission ? absl::OkStatus() : full);
    EXPECT_TRUE(ReportOf(kAttend, attend_, kExhausted).has_value());
    EXPECT_EQ(fields_.count("grpc-status-details-bin"), 1U);
    EXPECT_EQ(fields_.count("grpc-retry-pushback-ms"), 1U);
  }
}

TEST_F(ServerLoadReportTest, TellsTheEnginesLoad) {
  auto engine = std::make_unique<FakeEngine>();
  LoadStats& load = engine->fixed_stats().load;
  load.queued_seconds = 2.5;
  load.device_bytes = 1;
  load.max_device_bytes = 4;
  StartServer(Reporting(), std::move(engine));
  const auto report = ReportOf(kAttend, attend_, kOk);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->application_utilization(), 0.5);
  EXPECT_EQ(report->mem_utilization(), 0.25);
  ASSERT_EQ(report->named_metrics().count("castor_queued_seconds"), 1U);
  EXPECT_EQ(report->named_metrics().at("castor_queued_seconds"), 2.5);
}

TEST_F(ServerLoadReportTest, IsNotForCallersWhoAreNotLetIn) {
  StartServer(Reporting(), std::make_unique<FakeEngine>(), std::make_unique<Closed>());
  EXPECT_FALSE(ReportOf(kAttend, attend_, kUnauthenticated).has_value());
}

}  // namespace
}  // namespace castor::testing
