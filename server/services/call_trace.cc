#include "server/services/call_trace.h"

#include <string_view>

namespace castor::server {
namespace {

using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

// Empty if it is not there, or more than once.
std::string_view Header(const Metadata& metadata, const char* name) {
  const auto [begin, end] = metadata.equal_range(name);
  if (begin == end || std::next(begin) != end) return {};
  return {begin->second.data(), begin->second.size()};
}

std::string_view FullNameOf(Method method) {
  switch (method) {
    case Method::kAttend:
      return "castor.v1.AttentionService/Attend";
    case Method::kAttendStream:
      return "castor.v1.AttentionService/AttendStream";
    case Method::kEncodeStream:
      return "castor.v1.EncoderService/EncodeStream";
    default:
      return "castor.v1.EncoderService/Encode";
  }
}

}  // namespace

std::string CallTrace::trace_id() const {
  if (sampled != nullptr) return ToHex(sampled->own.trace);
  return caller.has_value() ? ToHex(caller->trace) : "";
}

std::string CallTrace::span_id() const {
  return sampled != nullptr ? ToHex(sampled->own.span) : "";
}

CallTrace BeginTrace(const Tracer& tracer, const grpc::ServerContextBase& context, Method method,
                     bool known) {
  CallTrace trace;
  const Metadata& metadata = context.client_metadata();
  if (known) trace.caller = ParseTraceparent(Header(metadata, "traceparent"));
  trace.sampled = tracer.Begin(trace.caller, FullNameOf(method));
  if (trace.sampled != nullptr && trace.caller.has_value()) {
    trace.sampled->state = UsableTraceState(Header(metadata, "tracestate"));
  }
  return trace;
}

}  // namespace castor::server
