#include "server/tracing/request_spans.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <string_view>

namespace castor::server {
namespace {

using opentelemetry::proto::trace::v1::Span;
using opentelemetry::proto::trace::v1::Status;

int64_t Nanos(double microseconds) { return static_cast<int64_t>(microseconds * 1e3); }

// As the enumeration has them.
constexpr std::string_view kStages[] = {"call", "decode", "admission", "engine", "answer"};

void Begin(const TraceContext& own, const SpanId& parent, std::string_view name, int64_t begun,
           int64_t ended, Span* span) {
  span->set_trace_id(own.trace.data(), own.trace.size());
  span->set_span_id(own.span.data(), own.span.size());
  if (parent != SpanId{}) span->set_parent_span_id(parent.data(), parent.size());
  span->set_name(name.data(), name.size());
  span->set_kind(Span::SPAN_KIND_INTERNAL);
  span->set_start_time_unix_nano(static_cast<uint64_t>(begun));
  span->set_end_time_unix_nano(static_cast<uint64_t>(ended));
}

auto* Value(const char* key, Span* span) {
  auto* const attribute = span->add_attributes();
  attribute->set_key(key);
  return attribute->mutable_value();
}
void Attribute(const char* key, std::string_view text, Span* span) {
  Value(key, span)->set_string_value(text.data(), text.size());
}
void Attribute(const char* key, int64_t number, Span* span) {
  Value(key, span)->set_int_value(number);
}

void Fail(const std::string& message, Span* span) {
  span->mutable_status()->set_code(Status::STATUS_CODE_ERROR);
  span->mutable_status()->set_message(message);
}

void AddServer(const RequestTrace& request, WallClock clock, ScopeSpans* out) {
  Span* const span = out->add_spans();
  Begin(request.own, request.parent, request.name, clock.At(request.received),
        clock.At(request.ended), span);
  span->set_kind(Span::SPAN_KIND_SERVER);
  span->set_trace_state(request.state);
  Attribute("rpc.system.name", "grpc", span);
  Attribute("rpc.method", request.name, span);
  Attribute("rpc.status_code", request.code, span);
  if (!request.request_id.empty()) Attribute("castor.request_id", request.request_id, span);
  if (!request.kernel.empty()) Attribute("castor.kernel", request.kernel, span);
  if (!request.model.empty()) Attribute("castor.model", request.model, span);
  if (request.ran) Attribute("castor.tokens", request.tokens, span);
  if (request.predicted_us > 0) {
    Value("castor.predicted_us", span)->set_double_value(request.predicted_us);
  }
  if (request.rejected_kernels > 0) {
    Attribute("castor.rejected_kernels", int64_t{request.rejected_kernels}, span);
  }
  if (!request.reason.empty()) {
    Attribute("castor.reason", request.reason, span);
    Attribute("castor.refused_at", kStages[static_cast<size_t>(request.stage)], span);
  }
  if (request.is_error) {
    Attribute("error.type", request.code, span);
    Fail(request.message, span);
  }
}

}  // namespace

int64_t TokensOf(const AttentionResult& result) {
  const auto& shape = result.output.shape;  // [tokens, heads, value_dim] or [batch, tokens, ...]
  if (shape.size() < 3) return 0;
  return std::accumulate(shape.begin(), shape.end() - 2, int64_t{1}, std::multiplies<>());
}

int64_t TokensOf(const EncodeResult& result) {
  return std::accumulate(result.token_counts.begin(), result.token_counts.end(), int64_t{0});
}

void NoteReport(const ExecutionReport& report, int64_t tokens, RequestTrace* trace) {
  trace->ran = true;
  trace->timing = report.timing;
  trace->batch = report.batch;
  trace->device = report.kernel.device;
  trace->backend = report.kernel.backend;
  trace->predicted_us = report.kernel.predicted_us;
  trace->rejected_kernels = static_cast<int>(report.kernel.rejected.size());
  trace->tokens = tokens;
}

int SpanCount(const RequestTrace& trace) {
  // The call, decode, queue, batch, compute and encode; or decode and what came after it.
  if (trace.ran) return 6 + (trace.timing.copy_in_us > 0) + (trace.timing.copy_out_us > 0);
  return trace.stage == Stage::kCall ? 1 : trace.stage <= Stage::kAdmission ? 2 : 3;
}

WallClock WallClock::Now() {
  using std::chrono::nanoseconds;
  const auto wall =
      std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch());
  return {(wall - std::chrono::steady_clock::now().time_since_epoch()).count()};
}

void AddRequest(const RequestTrace& request, WallClock clock, ScopeSpans* out) {
  AddServer(request, clock, out);
  SpanId parent = request.own.span;
  const auto add = [&](std::string_view name, int64_t begun, int64_t ended) {
    Span* const span = out->add_spans();
    Begin({.trace = request.own.trace, .span = NewSpanId()}, parent, name, begun, ended, span);
    return span;
  };
  const int64_t received = clock.At(request.received);
  const int64_t ended = clock.At(request.ended);
  if (!request.ran) {
    if (request.stage == Stage::kCall) return;
    const bool admitted = request.stage == Stage::kEngine || request.stage == Stage::kAnswer;
    const int64_t decoded = admitted ? clock.At(request.submitted) : ended;
    Span* last = add("decode", received, decoded);
    if (admitted) last = add("engine", decoded, ended);
    return Fail(request.message, last);
  }

  const int64_t queued = received + Nanos(request.timing.decode_us);
  add("decode", received, queued);
  add("queue", queued, queued + Nanos(request.timing.queue_us));
  const int64_t batch_begun = clock.At(request.batch.begun);
  const int64_t batch_ended = clock.At(request.batch.ended);
  Span* const run = add("batch", batch_begun, batch_ended);
  Attribute("castor.batch_id", static_cast<int64_t>(request.batch.id), run);
  Attribute("castor.batch.requests", int64_t{request.batch.requests}, run);
  Attribute("castor.batch.cached", int64_t{request.batch.cached}, run);
  Attribute("castor.batch.tokens", request.batch.tokens, run);
  Attribute("castor.batch.padded_tokens", request.batch.padded_tokens, run);
  Attribute("castor.device", request.device, run);
  Attribute("castor.backend", request.backend, run);
  std::copy(run->span_id().begin(), run->span_id().end(), parent.begin());
  const int64_t copied_in = std::min(batch_begun + Nanos(request.timing.copy_in_us), batch_ended);
  const int64_t computed = std::max(batch_ended - Nanos(request.timing.copy_out_us), copied_in);
  if (request.timing.copy_in_us > 0) add("copy_in", batch_begun, copied_in);
  add("compute", std::max(computed - Nanos(request.timing.compute_us), copied_in), computed);
  if (request.timing.copy_out_us > 0) add("copy_out", computed, batch_ended);
  parent = request.own.span;
  Span* const encode = add("encode", clock.At(request.completed), ended);
  if (!request.reason.empty()) Fail(request.message, encode);
}

}  // namespace castor::server
