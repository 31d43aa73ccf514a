// What OtlpWriter writes, read by protobuf.

#include "server/tracing/otlp_writer.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "opentelemetry/proto/collector/trace/v1/trace_service.pb.h"
#include "server/tracing/ids.h"

namespace castor::server {
namespace {

using opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
using opentelemetry::proto::trace::v1::ScopeSpans;

std::string Bytes(const auto& id) { return {reinterpret_cast<const char*>(id.data()), id.size()}; }

ScopeSpans Read(OtlpWriter& writer, const Resource& resource = {}) {
  ExportTraceServiceRequest request;
  const OtlpMessage message = writer.Take(resource);
  EXPECT_TRUE(request.ParseFromString(message.head + message.spans));
  EXPECT_EQ(request.resource_spans_size(), 1);
  EXPECT_TRUE(request.GetReflection()->GetUnknownFields(request).empty());
  EXPECT_EQ(request.resource_spans(0).scope_spans_size(), 1);
  EXPECT_EQ(request.resource_spans(0).resource().attributes_size(),
            static_cast<int>(resource.size()));
  return request.resource_spans(0).scope_spans(0);
}

TEST(OtlpWriterTest, ASpanIsReadAsItWasWritten) {
  const TraceContext own{.trace = NewTraceId(), .span = NewSpanId(), .sampled = true};
  const TraceContext other{.trace = NewTraceId(), .span = NewSpanId(), .sampled = true};
  const SpanId parent = NewSpanId();
  OtlpWriter writer;
  writer.Begin(own, parent, "name", SpanKind::kServer, 1'790'000'000'123'456'789,
               1'790'000'000'123'456'790);
  writer.State("a=b");
  writer.Attribute("text", "value");
  writer.Attribute("empty", "");
  writer.Attribute("number", int64_t{-7});
  writer.Attribute("large", std::numeric_limits<int64_t>::max());
  writer.Attribute("real", 0.25);
  writer.Link(other);
  writer.Failed("why");
  writer.End();
  EXPECT_EQ(writer.spans(), 1);

  const ScopeSpans scope = Read(writer);
  EXPECT_EQ(scope.scope().name(), "castor");
  ASSERT_EQ(scope.spans_size(), 1);
  const auto& span = scope.spans(0);
  EXPECT_EQ(span.trace_id(), Bytes(own.trace));
  EXPECT_EQ(span.span_id(), Bytes(own.span));
  EXPECT_EQ(span.parent_span_id(), Bytes(parent));
  EXPECT_EQ(span.name(), "name");
  EXPECT_EQ(span.kind(), span.SPAN_KIND_SERVER);
  EXPECT_EQ(span.start_time_unix_nano(), 1'790'000'000'123'456'789U);
  EXPECT_EQ(span.end_time_unix_nano(), 1'790'000'000'123'456'790U);
  EXPECT_EQ(span.trace_state(), "a=b");
  ASSERT_EQ(span.attributes_size(), 5);
  EXPECT_EQ(span.attributes(0).value().string_value(), "value");
  EXPECT_TRUE(span.attributes(1).value().has_string_value());
  EXPECT_EQ(span.attributes(2).value().int_value(), -7);
  EXPECT_EQ(span.attributes(3).value().int_value(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(span.attributes(4).value().double_value(), 0.25);
  ASSERT_EQ(span.links_size(), 1);
  EXPECT_EQ(span.links(0).trace_id(), Bytes(other.trace));
  EXPECT_EQ(span.links(0).span_id(), Bytes(other.span));
  EXPECT_EQ(span.status().code(), 2);
  EXPECT_EQ(span.status().message(), "why");
}

// The lengths of lengths change at 128 and 16384.
TEST(OtlpWriterTest, AnyLengthIsWritten) {
  for (const size_t size : {0U, 1U, 100U, 119U, 120U, 121U, 122U, 123U, 124U, 125U, 126U, 127U,
                            128U, 129U, 16370U, 16383U, 16384U, 16385U, 70000U}) {
    const std::string text(size, 'x');
    OtlpWriter writer;
    writer.Begin({}, {}, text, SpanKind::kInternal, 0, 0);
    writer.Attribute(text, text);
    writer.Attribute(text, int64_t{1});
    writer.Failed(text);
    writer.End();
    const ScopeSpans scope = Read(writer, {{text, text}});
    ASSERT_EQ(scope.spans_size(), 1) << size;
    EXPECT_EQ(scope.spans(0).name(), text);
    ASSERT_EQ(scope.spans(0).attributes_size(), 2);
    EXPECT_EQ(scope.spans(0).attributes(0).value().string_value(), text);
    EXPECT_EQ(scope.spans(0).attributes(1).key(), text);
    EXPECT_EQ(scope.spans(0).status().message(), text);
  }
}

TEST(OtlpWriterTest, EachMessageBeginsAnew) {
  OtlpWriter writer;
  for (int spans = 3; spans >= 1; --spans) {
    for (int i = 0; i < spans; ++i) {
      writer.Begin({}, {}, "x", SpanKind::kInternal, 0, 0);
      writer.End();
    }
    EXPECT_EQ(Read(writer).spans_size(), spans);
    EXPECT_EQ(writer.spans(), 0);
  }
}

}  // namespace
}  // namespace castor::server
