// The page in OpenMetrics, with exemplars of sampled requests.

#include <chrono>
#include <regex>
#include <string>

#include "tests/integration/server_fixture.h"
#include "tests/support/trace_collector.h"
#include "tests/unit/server/http_client.h"

namespace castor::testing {
namespace {

class ServerExemplarsTest : public ServerTest {
 protected:
  ~ServerExemplarsTest() override { StopServer(); }  // before its collector

  std::string Open() const {
    return server::HttpClient(server_->metrics_port())
        .Ask("GET", "/metrics", "Accept: application/openmetrics-text; version=1.0.0\r\n");
  }

  TraceCollector collector_;
};

TEST_F(ServerExemplarsTest, AreSampledRequestsOfTheirBuckets) {
  server::ServerOptions options = TestOptionsWithMetrics();
  options.trace.endpoint = collector_.endpoint();
  options.trace.sample = 0.000001;
  StartServer(options);
  AttendCall unsampled;
  ASSERT_TRUE(unsampled.Run(*attention_, AttendOf(1)).ok());
  EXPECT_EQ(Open().find(" # {"), std::string::npos);

  AttendCall call;
  call.context.AddMetadata("traceparent",
                           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  ASSERT_TRUE(call.Run(*attention_, AttendOf(1)).ok());
  const std::string page = Open();
  EXPECT_NE(page.find("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
            std::string::npos);
  EXPECT_TRUE(page.ends_with("# EOF\n"));
  static const std::regex kExemplar(
      "castor_request_duration_seconds_bucket\\{kernel=\"vanilla\",method=\"attend\",le=\"([0-9.]+)"
      "\"\\} [12] # \\{trace_id=\"4bf92f3577b34da6a3ce929d0e0e4736\",span_id=\"([0-9a-f]{16})\"\\} "
      "([0-9.e-]+) ([0-9]+\\.[0-9]{3})\n");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(page, match, kExemplar)) << page;
  EXPECT_LE(std::stod(match[3]), std::stod(match[1]));
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(std::stod(match[4]), now, 60);
  EXPECT_EQ(match.suffix().str().find(" # {"), std::string::npos) << "one bucket has it";
  EXPECT_EQ(Scrape().find(" # {"), std::string::npos) << "the text format has none";
}

}  // namespace
}  // namespace castor::testing
