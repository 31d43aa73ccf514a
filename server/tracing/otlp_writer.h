// Spans as the bytes of an opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest.
//
// It writes the wire format itself: a request in full is eight spans, and building messages of them
// would cost several times as much. Texts must be UTF-8. For one thread at a time.
//
//   writer.Begin(context, parent, "decode", SpanKind::kInternal, begun, ended);
//   writer.Attribute("castor.tokens", 128);
//   writer.End();
//   send(writer.Take(resource));
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/tracing/trace_context.h"
#include "server/tracing/wire_buffer.h"

namespace castor::server {

enum class SpanKind { kInternal = 1, kServer = 2 };

// Attributes of what sends the spans, names and texts.
using Resource = std::vector<std::pair<std::string, std::string>>;

// A whole message, in two pieces: nearly all of it is spans, which are not copied again.
struct OtlpMessage {
  std::string head;
  std::string spans;
};

class OtlpWriter {
 public:
  // A span, from `begun` to `ended`, in nanoseconds since 1970. A zero `parent` is none.
  void Begin(const TraceContext& own, const SpanId& parent, std::string_view name, SpanKind kind,
             int64_t begun, int64_t ended);
  // Of the span that was begun.
  void State(std::string_view trace_state);
  void Attribute(std::string_view key, std::string_view text);
  void Attribute(std::string_view key, const char* text) { Attribute(key, std::string_view(text)); }
  void Attribute(std::string_view key, int64_t number);
  void Attribute(std::string_view key, double number);
  void Link(const TraceContext& to);
  void Failed(std::string_view message);
  void End();

  // Of what has been written since the last Take.
  int64_t spans() const { return spans_; }

  // The whole message; the writer is empty again.
  OtlpMessage Take(const Resource& resource);

 private:
  WireBuffer span_;          // the one that was begun
  WireBuffer length_;        // its
  std::string spans_bytes_;  // those that have ended, as fields of a ScopeSpans
  int64_t spans_ = 0;
};

}  // namespace castor::server
