#include "server/tracing/request_trace.h"

#include <functional>
#include <numeric>

namespace castor::server {

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
  if (trace.ran) {
    const int copies =
        (trace.timing.copy_in_us > 0 ? 1 : 0) + (trace.timing.copy_out_us > 0 ? 1 : 0);
    return 6 + copies;  // the call, decode, queue, batch, compute, encode
  }
  switch (trace.stage) {
    case Stage::kCall:
      return 1;
    case Stage::kDecode:
    case Stage::kAdmission:
      return 2;
    case Stage::kEngine:
    case Stage::kAnswer:
      return 3;
  }
  return 1;
}

int64_t SizeBytes(const RequestTrace& trace) {
  return static_cast<int64_t>(sizeof(trace) + trace.state.size() + trace.message.size() +
                              trace.request_id.size());
}

}  // namespace castor::server
