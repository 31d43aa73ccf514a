// The traces of a whole server, as a collector gets them.

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "tests/integration/server_fixture.h"
#include "tests/support/sanitizer.h"
#include "tests/support/trace_collector.h"

namespace castor::testing {
namespace {

using otlp::trace::v1::Span;
using otlp::trace::v1::Status;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kAttend[] = "castor.v1.AttentionService/Attend";
constexpr char kEncode[] = "castor.v1.EncoderService/Encode";
constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kParent[] = "00f067aa0ba902b7";

std::string Hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(c));
    text += digits;
  }
  return text;
}

class ServerTraceTest : public ServerTest {
 protected:
  ~ServerTraceTest() override { StopServer(); }  // before its collector

  server::ServerOptions Traced(double sample = 1) const {
    server::ServerOptions options = TestOptionsWithMetrics();
    options.trace.endpoint = collector_.endpoint();
    options.trace.sample = sample;
    options.trace.export_interval = milliseconds(5);
    return options;
  }

  grpc::Status Attend(const std::string& traceparent = "", const std::string& id = "") {
    AttendCall call;
    if (!traceparent.empty()) call.context.AddMetadata("traceparent", traceparent);
    return call.Run(*attention_, AttendOf(3, id));
  }

  // The only span of the name, once it is there.
  Span One(const std::string& name) const {
    EXPECT_TRUE(collector_.Await([&](const Spans& spans) { return !Named(spans, name).empty(); }))
        << name;
    const Spans found = Named(collector_.spans(), name);
    EXPECT_EQ(found.size(), 1U) << name;
    return found.empty() ? Span() : found.front();
  }

  TraceCollector collector_;
};

void ExpectInside(const Span& inner, const Span& outer) {
  EXPECT_LE(inner.start_time_unix_nano(), inner.end_time_unix_nano()) << inner.name();
  EXPECT_GE(inner.start_time_unix_nano(), outer.start_time_unix_nano()) << inner.name();
  EXPECT_LE(inner.end_time_unix_nano(), outer.end_time_unix_nano()) << inner.name();
  EXPECT_EQ(inner.trace_id(), outer.trace_id()) << inner.name();
  EXPECT_EQ(inner.parent_span_id(), outer.span_id()) << inner.name();
  EXPECT_EQ(inner.kind(), Span::SPAN_KIND_INTERNAL) << inner.name();
  EXPECT_EQ(inner.status().code(), Status::STATUS_CODE_UNSET) << inner.name();
}

TEST_F(ServerTraceTest, ARequestIsATreeOfItsStages) {
  StartServer(Traced());
  ASSERT_TRUE(Attend("", "my request").ok());
  ASSERT_TRUE(collector_.AwaitSpans(8));
  const Spans all = collector_.spans();
  ASSERT_EQ(all.size(), 8U);
  const Span server = One(kAttend);
  EXPECT_EQ(server.kind(), Span::SPAN_KIND_SERVER);
  EXPECT_EQ(server.parent_span_id(), "") << "the first of its trace";
  EXPECT_EQ(server.trace_id().size(), 16U);
  EXPECT_EQ(server.span_id().size(), 8U);
  EXPECT_EQ(AttributeOf(server, "rpc.system.name"), "grpc");
  EXPECT_EQ(AttributeOf(server, "rpc.method"), kAttend);
  EXPECT_EQ(AttributeOf(server, "rpc.status_code"), "OK");
  EXPECT_EQ(AttributeOf(server, "castor.kernel"), "vanilla");
  EXPECT_EQ(AttributeOf(server, "castor.tokens"), "3");
  EXPECT_EQ(AttributeOf(server, "castor.request_id"), "my request");
  EXPECT_EQ(server.status().code(), Status::STATUS_CODE_UNSET);
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  EXPECT_NEAR(static_cast<double>(server.start_time_unix_nano()), static_cast<double>(now), 60e9);

  uint64_t before = 0;
  for (const char* name : {"decode", "queue", "encode"}) {
    const Span stage = One(name);
    ExpectInside(stage, server);
    EXPECT_GE(stage.start_time_unix_nano(), before) << name << " is in order";
    before = stage.end_time_unix_nano();
  }
  const Span batch = One("batch");
  ExpectInside(batch, server);
  for (const char* name : {"copy_in", "compute", "copy_out"}) ExpectInside(One(name), batch);
  for (const char* key : {"castor.batch_id", "castor.batch.requests", "castor.batch.tokens"}) {
    EXPECT_TRUE(AttributeOf(batch, key).has_value()) << key;
  }
  EXPECT_EQ(AttributeOf(batch, "castor.backend"), "fake");
  std::map<std::string, int> ids;
  for (const Span& span : all) EXPECT_EQ(++ids[span.span_id()], 1);
}

TEST_F(ServerTraceTest, ACallersTraceGoesOn) {
  StartServer(Traced(/*sample=*/0.000001));
  AttendCall call;
  call.context.AddMetadata("traceparent", std::string("00-") + kTrace + "-" + kParent + "-01");
  call.context.AddMetadata("tracestate", "vendor=something");
  ASSERT_TRUE(call.Run(*attention_, AttendOf(3)).ok());
  const Span server = One(kAttend);
  EXPECT_EQ(Hex(server.trace_id()), kTrace);
  EXPECT_EQ(Hex(server.parent_span_id()), kParent);
  EXPECT_EQ(server.trace_state(), "vendor=something");

  // One who says that it is not sampled, two who say nonsense, and one who says nothing.
  EXPECT_TRUE(Attend(std::string("00-") + kTrace + "-" + kParent + "-00").ok());
  EXPECT_TRUE(Attend(std::string("00-") + kTrace + "-0000000000000000-01").ok());
  EXPECT_TRUE(Attend("nonsense").ok());
  EXPECT_TRUE(Attend().ok());
  StopServer();  // sends what there is
  EXPECT_EQ(Named(collector_.spans(), kAttend).size(), 1U);
}

TEST_F(ServerTraceTest, EachMessageOfAStreamIsARequest) {
  StartServer(Traced(/*sample=*/0.000001));
  grpc::ClientContext context;
  context.AddMetadata("traceparent", std::string("00-") + kTrace + "-" + kParent + "-01");
  const auto stream = attention_->AttendStream(&context);
  ASSERT_TRUE(stream->Write(AttendOf(3, "first")));
  ASSERT_TRUE(stream->Write(v1::AttendRequest()));
  stream->WritesDone();
  for (v1::AttendResponse response; stream->Read(&response);) {
  }
  ASSERT_TRUE(stream->Finish().ok());
  StopServer();  // sends what there is
  std::set<std::string> codes;
  for (const Span& span : Named(collector_.spans(), "castor.v1.AttentionService/AttendStream")) {
    EXPECT_EQ(Hex(span.trace_id()), kTrace);
    EXPECT_EQ(Hex(span.parent_span_id()), kParent);
    codes.insert(AttributeOf(span, "rpc.status_code").value_or(""));
  }
  EXPECT_EQ(codes, (std::set<std::string>{"OK", "INVALID_ARGUMENT"}));
}

TEST_F(ServerTraceTest, RefusalsSayWhere) {
  StartServer(Traced());
  EXPECT_FALSE(CallRaw("/castor.v1.AttentionService/Attend", "\xff").ok());
  ASSERT_TRUE(collector_.AwaitSpans(2));
  engine_->RefuseWith(QueueFull("no room", milliseconds(1)));
  EXPECT_FALSE(Attend().ok());
  engine_->RefuseWith(absl::OkStatus());
  ASSERT_TRUE(collector_.AwaitSpans(4));
  engine_->FailWith(MakeError(Reason::kDeadlineExceeded, "too late"));
  EXPECT_FALSE(Attend().ok());
  ASSERT_TRUE(collector_.AwaitSpans(7));

  const Spans calls = Named(collector_.spans(), kAttend);
  ASSERT_EQ(calls.size(), 3U);
  const auto expect = [](const Span& span, const char* code, const char* reason, const char* stage,
                         bool error) {
    EXPECT_EQ(AttributeOf(span, "rpc.status_code"), code);
    EXPECT_EQ(AttributeOf(span, "castor.reason"), reason);
    EXPECT_EQ(AttributeOf(span, "castor.refused_at"), stage);
    EXPECT_EQ(span.status().code(), error ? Status::STATUS_CODE_ERROR : Status::STATUS_CODE_UNSET);
    EXPECT_EQ(AttributeOf(span, "error.type").has_value(), error);
  };
  // Only what is the server's own fault is an error of its span; the stage in which a request ended
  // has failed in any case.
  expect(calls[0], "INVALID_ARGUMENT", "MALFORMED_MESSAGE", "decode", false);
  expect(calls[1], "RESOURCE_EXHAUSTED", "QUEUE_FULL", "admission", false);
  expect(calls[2], "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "engine", true);
  const Spans decodes = Named(collector_.spans(), "decode");
  ASSERT_EQ(decodes.size(), 3U);
  EXPECT_EQ(decodes[0].status().code(), Status::STATUS_CODE_ERROR);
  EXPECT_EQ(decodes[1].status().code(), Status::STATUS_CODE_ERROR);
  EXPECT_EQ(decodes[1].status().message(), "no room");
  ExpectInside(decodes[2], calls[2]);
  EXPECT_EQ(One("engine").status().message(), "too late");
}

TEST_F(ServerTraceTest, ACancelledCallHasItsSpans) {
  StartServer(Traced());
  engine_->HoldRunning();
  AttendCall cancelled;
  std::thread caller([&] { cancelled.Run(*attention_, AttendOf(1)); });
  ASSERT_TRUE(engine_->AwaitRunning());
  cancelled.context.TryCancel();
  caller.join();
  ASSERT_TRUE(engine_->AwaitCancels(1));
  engine_->Release();
  const Span server = One(kAttend);
  EXPECT_EQ(AttributeOf(server, "rpc.status_code"), "CANCELLED");
  EXPECT_EQ(AttributeOf(server, "castor.reason"), "CANCELLED");
  EXPECT_EQ(server.status().code(), Status::STATUS_CODE_UNSET);
}

TEST_F(ServerTraceTest, OnlyRequestsHaveSpans) {
  StartServer(Traced());
  EXPECT_TRUE(CallRaw("/castor.v1.ServerService/GetServerInfo", "").ok());
  EXPECT_TRUE(Attend().ok());
  EXPECT_FALSE(CallRaw("/tei.v1.Embed/EmbedAll", "\xff").ok());
  StopServer();
  EXPECT_EQ(Named(collector_.spans(), "tei.v1.Embed/EmbedAll").size(), 1U)
      << "a method's own name, though its metrics are tei's";
  for (const Span& span : collector_.spans()) {
    EXPECT_EQ(span.name().find("GetServerInfo"), std::string::npos);
  }
}

TEST_F(ServerTraceTest, TheResourceSaysWhoSends) {
  StartServer(Traced());
  EXPECT_TRUE(Attend().ok());
  ASSERT_TRUE(collector_.AwaitSpans(1));
  std::map<std::string, std::string> resource;
  const otlp::resource::v1::Resource sent = collector_.resource();
  for (const auto& attribute : sent.attributes()) {
    resource[attribute.key()] = attribute.value().string_value();
  }
  EXPECT_EQ(resource["service.name"], "castor");
  EXPECT_FALSE(resource["service.version"].empty());
  EXPECT_FALSE(resource["service.instance.id"].empty());
  EXPECT_FALSE(resource["host.name"].empty());
}

// With the real engine: requests that ran together say so.
TEST_F(ServerTraceTest, RequestsOfOneBatchHaveItsNumber) {
  EngineOptions engine_options;
  engine_options.batch_delay = std::chrono::microseconds(200'000);
  engine_options.max_batch_requests = 3;
  StartReal({{"tiny", CASTOR_TINY_MODEL}}, Traced(), engine_options);
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&, i] {
      v1::EncodeRequest tokens;
      for (int token = 0; token <= i; ++token) tokens.mutable_tokens()->add_ids(1);
      Encode(tokens);
    });
  }
  for (std::thread& caller : callers) caller.join();
  StopServer();

  const Spans all = collector_.spans();
  std::map<std::string, Span> by_id;
  for (const Span& span : all) by_id[span.span_id()] = span;
  const Spans runs = Named(all, "batch");
  EXPECT_EQ(runs.size(), 3U);
  std::map<std::string, int> sizes;
  for (const Span& span : runs) ++sizes[AttributeOf(span, "castor.batch_id").value_or("")];
  for (const Span& span : runs) {
    EXPECT_EQ(AttributeOf(span, "castor.batch.requests"),
              std::to_string(sizes[AttributeOf(span, "castor.batch_id").value_or("")]));
    const Span& server = by_id.at(span.parent_span_id());
    EXPECT_EQ(server.name(), kEncode);
    EXPECT_EQ(AttributeOf(server, "castor.model"), "tiny");
    ExpectInside(span, server);
  }
  EXPECT_TRUE(Named(all, "copy_in").empty()) << "the CPU copies nothing";
  for (const Span& compute : Named(all, "compute")) {
    ExpectInside(compute, by_id.at(compute.parent_span_id()));
  }
  int64_t tokens = 0;
  for (const Span& server : Named(all, kEncode)) {
    tokens += std::stoll(AttributeOf(server, "castor.tokens").value_or("0"));
  }
  EXPECT_EQ(tokens, 6);
}

// A collector that refuses, hangs, is away or comes back costs spans, and never a request.

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

  void Attend() { EXPECT_TRUE(Try(AttendOf(3)).ok()); }

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
