// A collector that refuses, hangs, is away or comes back costs spans, and never a request.

#include <chrono>
#include <string>

#include "tests/integration/server_fixture.h"
#include "tests/support/sanitizer.h"
#include "tests/support/trace_collector.h"

namespace castor::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kExported[] = "castor_trace_spans_exported_total";

class ServerTraceFaultsTest : public ServerTest {
 protected:
  ~ServerTraceFaultsTest() override { StopServer(); }  // before its collector

  server::ServerOptions Traced() const {
    server::ServerOptions options = TestOptionsWithMetrics();
    options.trace.endpoint = collector_.endpoint();
    options.trace.sample = 1;
    options.trace.export_interval = milliseconds(1);
    options.trace.first_backoff = milliseconds(2);
    options.trace.max_backoff = milliseconds(10);
    return options;
  }

  void Attend() {
    AttendCall call;
    EXPECT_TRUE(call.Run(*attention_, AttendOf(3)).ok());
  }

  double Dropped(const std::string& reason) const {
    return Metric("castor_trace_spans_dropped_total{reason=\"" + reason + "\"}");
  }
  bool AwaitDropped(const std::string& reason, double spans) const {
    return Await([&] { return Dropped(reason) >= spans; });
  }

  TraceCollector collector_;
};

TEST_F(ServerTraceFaultsTest, WhatFailsForNowIsSentAgain) {
  StartServer(Traced());
  collector_.AnswerWith({grpc::StatusCode::UNAVAILABLE, "not now"});
  Attend();
  ASSERT_TRUE(collector_.AwaitExports(3));
  EXPECT_TRUE(collector_.spans().empty());
  collector_.AnswerWith(grpc::Status::OK);
  ASSERT_TRUE(collector_.AwaitSpans(8));
  EXPECT_TRUE(AwaitMetric(kExported, 8));
  EXPECT_EQ(collector_.spans().size(), 8U);
  EXPECT_EQ(Dropped("export_failed"), 0);
  EXPECT_GE(Metric("castor_trace_exports_total{result=\"failed\"}"), 2);
}

TEST_F(ServerTraceFaultsTest, WhatIsRefusedForGoodIsNot) {
  StartServer(Traced());
  // Nor is a collector without room that does not say when to come again.
  for (const auto code :
       {grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::RESOURCE_EXHAUSTED}) {
    const double before = Dropped("refused");
    const int exports = collector_.exports();
    collector_.AnswerWith({code, "no"});
    Attend();
    ASSERT_TRUE(AwaitDropped("refused", before + 8));
    EXPECT_EQ(collector_.exports(), exports + 1);
  }
  EXPECT_EQ(Metric("castor_trace_exports_total{result=\"failed\"}"), 0);
}

TEST_F(ServerTraceFaultsTest, RejectedSpansAreCountedAndNotSentAgain) {
  StartServer(Traced());
  collector_.Reject(3);
  Attend();
  ASSERT_TRUE(AwaitDropped("rejected", 3));
  EXPECT_TRUE(AwaitMetric(kExported, 5));
  EXPECT_EQ(collector_.exports(), 1);
}

TEST_F(ServerTraceFaultsTest, ACollectorThatIsAwayIsFoundAgain) {
  server::ServerOptions options = Traced();
  options.trace.give_up_after = milliseconds(50);
  collector_.GoAway();
  StartServer(options);
  Attend();
  ASSERT_TRUE(AwaitDropped("export_failed", 8));
  collector_.ComeBack();
  ASSERT_TRUE(Await([&] {
    Attend();
    return !collector_.spans().empty();
  }));
}

// While one export hangs the queue fills; requests go on as if nothing was the matter.
TEST_F(ServerTraceFaultsTest, ACollectorThatHangsCostsSpansOnly) {
  server::ServerOptions options = Traced();
  options.trace.max_queued_requests = 8;
  options.trace.export_timeout = options.trace.give_up_after = milliseconds(60'000);
  StartServer(options);
  collector_.Hang(true);
  Attend();
  ASSERT_TRUE(collector_.AwaitExports(1));
  for (int i = 0; i < 20; ++i) Attend();
  // Eight requests of eight spans fit.
  EXPECT_EQ(Dropped("queue_full"), 12 * 8);
  collector_.Hang(false);
  EXPECT_TRUE(Await([&] { return Named(collector_.spans(), "encode").size() == 9; }));
}

TEST_F(ServerTraceFaultsTest, ACallThatHangsIsGivenUpAndMadeAnew) {
  server::ServerOptions options = Traced();
  options.trace.export_timeout = milliseconds(30);
  StartServer(options);
  collector_.Hang(true);
  Attend();
  ASSERT_TRUE(collector_.AwaitExports(3));
  collector_.Hang(false);
  EXPECT_TRUE(collector_.AwaitSpans(8));
}

TEST_F(ServerTraceFaultsTest, TheLastSpansLeaveWithTheServer) {
  server::ServerOptions options = Traced();
  options.trace.export_interval = milliseconds(60'000);
  StartServer(options);
  for (int i = 0; i < 5; ++i) Attend();
  EXPECT_EQ(collector_.exports(), 0);
  EXPECT_TRUE(server_->Drain());
  EXPECT_EQ(collector_.spans().size(), 5U * 8);
}

TEST_F(ServerTraceFaultsTest, AServerEndsThoughItsCollectorHangs) {
  server::ServerOptions options = Traced();
  options.trace.export_timeout = options.trace.give_up_after = milliseconds(600'000);
  StartServer(options);
  collector_.Hang(true);
  Attend();
  ASSERT_TRUE(collector_.AwaitExports(1));
  Attend();
  const auto begin = steady_clock::now();
  EXPECT_TRUE(server_->Drain());
  EXPECT_LT(steady_clock::now() - begin, Patience(milliseconds(15'000)));
  EXPECT_GE(Dropped("shutdown"), 8);
}

TEST_F(ServerTraceFaultsTest, AFileOfAuthoritiesMustBeThere) {
  server::ServerOptions options = Traced();
  options.trace.tls = true;
  options.trace.ca = "/nowhere/ca.pem";
  const auto started = server::Server::Start(std::move(options), std::make_unique<FakeEngine>());
  ASSERT_FALSE(started.ok());
  EXPECT_NE(started.status().message().find("OTEL_EXPORTER_OTLP_CERTIFICATE"), std::string::npos);
}

}  // namespace
}  // namespace castor::testing
