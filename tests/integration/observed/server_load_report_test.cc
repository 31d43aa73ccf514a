// The load report in the trailers, over a real socket.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "engine/base/error.h"
#include "server/metrics/load_report.h"
#include "tests/integration/server_fixture.h"
#include "tests/integration/trailer_client.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace castor::testing {
namespace {

using ::xds::data::orca::v3::OrcaLoadReport;

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
