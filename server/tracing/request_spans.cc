#include "server/tracing/request_spans.h"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "server/tracing/ids.h"

namespace castor::server {
namespace {

constexpr double kNanosPerMicro = 1e3;

int64_t Nanos(double microseconds) { return static_cast<int64_t>(microseconds * kNanosPerMicro); }

std::string_view NameOf(Stage stage) {
  switch (stage) {
    case Stage::kCall:
      return "call";
    case Stage::kDecode:
      return "decode";
    case Stage::kAdmission:
      return "admission";
    case Stage::kEngine:
      return "engine";
    case Stage::kAnswer:
      return "answer";
  }
  return "call";
}

void WriteBatchAttributes(const BatchReport& report, OtlpWriter& out) {
  out.Attribute("castor.batch_id", static_cast<int64_t>(report.id));
  out.Attribute("castor.batch.requests", int64_t{report.requests});
  out.Attribute("castor.batch.tokens", report.tokens);
}

class RequestWriter {
 public:
  RequestWriter(const RequestTrace& request, WallClock clock, OtlpWriter& out)
      : request_(request), clock_(clock), out_(out) {}

  void Write(const TraceContext& batch) {
    WriteServer();
    if (request_.ran) return WriteRun(batch);
    if (request_.stage == Stage::kCall) return;
    const bool admitted = request_.stage != Stage::kDecode && request_.stage != Stage::kAdmission;
    const TimePoint decoded = admitted ? request_.submitted : request_.ended;
    Begin("decode", request_.own.span, clock_.At(request_.received), clock_.At(decoded));
    End(/*failed=*/!admitted);
    if (!admitted) return;
    Begin("engine", request_.own.span, clock_.At(decoded), clock_.At(request_.ended));
    End(/*failed=*/true);
  }

 private:
  void WriteServer() {
    out_.Begin(request_.own, request_.parent, request_.name, SpanKind::kServer,
               clock_.At(request_.received), clock_.At(request_.ended));
    out_.State(request_.state);
    out_.Attribute("rpc.system.name", "grpc");
    out_.Attribute("rpc.method", request_.name);
    out_.Attribute("rpc.status_code", request_.code);
    if (!request_.request_id.empty()) out_.Attribute("castor.request_id", request_.request_id);
    if (!request_.kernel.empty()) out_.Attribute("castor.kernel", request_.kernel);
    if (request_.ran) out_.Attribute("castor.tokens", request_.tokens);
    if (request_.predicted_us > 0) out_.Attribute("castor.predicted_us", request_.predicted_us);
    if (request_.rejected_kernels > 0) {
      out_.Attribute("castor.rejected_kernels", int64_t{request_.rejected_kernels});
    }
    if (!request_.reason.empty()) {
      out_.Attribute("castor.reason", request_.reason);
      out_.Attribute("castor.refused_at", NameOf(request_.stage));
    }
    if (request_.is_error) {
      out_.Attribute("error.type", request_.code);
      out_.Failed(request_.message);
    }
    out_.End();
  }

  void WriteRun(const TraceContext& batch) {
    const int64_t received = clock_.At(request_.received);
    const int64_t queued = received + Nanos(request_.timing.decode_us);
    const int64_t launched = queued + Nanos(request_.timing.queue_us);
    Begin("decode", request_.own.span, received, queued);
    End();
    Begin("queue", request_.own.span, queued, launched);
    End();

    const BatchReport& report = request_.batch;
    const int64_t begun = clock_.At(report.begun);
    const int64_t ended = clock_.At(report.ended);
    const SpanId run = Begin("batch", request_.own.span, begun, ended);
    WriteBatchAttributes(report, out_);
    out_.Link(batch);
    End();
    const int64_t copied_in = std::min(begun + Nanos(request_.timing.copy_in_us), ended);
    const int64_t computed = std::max(ended - Nanos(request_.timing.copy_out_us), copied_in);
    const int64_t computing = std::max(computed - Nanos(request_.timing.compute_us), copied_in);
    if (request_.timing.copy_in_us > 0) {
      Begin("copy_in", run, begun, copied_in);
      End();
    }
    Begin("compute", run, computing, computed);
    End();
    if (request_.timing.copy_out_us > 0) {
      Begin("copy_out", run, computed, ended);
      End();
    }
    Begin("encode", request_.own.span, clock_.At(request_.completed), clock_.At(request_.ended));
    End(/*failed=*/!request_.reason.empty());
  }

  SpanId Begin(std::string_view name, const SpanId& parent, int64_t begun, int64_t ended) {
    TraceContext own = request_.own;
    own.span = NewSpanId();
    out_.Begin(own, parent, name, SpanKind::kInternal, begun, ended);
    return own.span;
  }

  void End(bool failed = false) {
    if (failed) out_.Failed(request_.message);
    out_.End();
  }

  const RequestTrace& request_;
  const WallClock clock_;
  OtlpWriter& out_;
};

}  // namespace

WallClock WallClock::Now() {
  using std::chrono::nanoseconds;
  const auto wall =
      std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch());
  return WallClock((wall - std::chrono::steady_clock::now().time_since_epoch()).count());
}

void WriteRequest(const RequestTrace& request, const TraceContext& batch, WallClock clock,
                  OtlpWriter& out) {
  RequestWriter(request, clock, out).Write(batch);
}

TraceContext BatchSpans::ContextOf(const RequestTrace& request) const {
  return BatchContext(seed_, request.batch.id);
}

void BatchSpans::Add(const RequestTrace& request, WallClock clock, TimePoint due) {
  Batch& batch = waiting_[request.batch.id];
  if (batch.sampled++ == 0) {
    batch.due = due;
    batch.begun = clock.At(request.batch.begun);
    batch.ended = clock.At(request.batch.ended);
    batch.report = request.batch;
    batch.kernel = request.kernel;
    batch.device = request.device;
    batch.backend = request.backend;
  }
  if (batch.requests.size() < kMaxLinks) batch.requests.push_back(request.own);
}

void BatchSpans::Write(TimePoint now, OtlpWriter& out) {
  while (!waiting_.empty() && (next_due() <= now || waiting_.size() > kMaxWaiting)) {
    const Batch& batch = waiting_.begin()->second;
    out.Begin(BatchContext(seed_, batch.report.id), {}, "batch", SpanKind::kInternal, batch.begun,
              batch.ended);
    WriteBatchAttributes(batch.report, out);
    out.Attribute("castor.kernel", batch.kernel);
    out.Attribute("castor.device", batch.device);
    out.Attribute("castor.backend", batch.backend);
    out.Attribute("castor.batch.padded_tokens", batch.report.padded_tokens);
    out.Attribute("castor.batch.sampled_requests", batch.sampled);
    for (const TraceContext& request : batch.requests) out.Link(request);
    out.End();
    waiting_.erase(waiting_.begin());
  }
}

}  // namespace castor::server
