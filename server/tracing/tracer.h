// Traces: which calls are sampled, and the thread that turns what is kept of them into spans and
// sends those to a collector.
//
// A sampled request costs its own threads the filling of a RequestTrace and a push under a lock,
// less than a microsecond; one that is not costs the look at its headers. What the queue has no
// room for is dropped and counted.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "engine/base/time.h"
#include "server/metrics/metrics_traces.h"
#include "server/tracing/otlp_exporter.h"
#include "server/tracing/request_spans.h"
#include "server/tracing/request_trace.h"
#include "server/tracing/resource.h"
#include "server/tracing/span_queue.h"
#include "server/tracing/trace_context.h"
#include "server/tracing/trace_options.h"

namespace castor::server {

// Any thread may call Begin, End and on.
class Tracer {
 public:
  // Samples nothing until Start. `metrics` must outlive it.
  explicit Tracer(TraceMetrics& metrics) : metrics_(metrics) {}
  // Drops what is left.
  ~Tracer() { Stop(TimePoint::min()); }
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // Begins, with an endpoint. Call at most once, before Begin. It does not wait for the collector.
  absl::Status Start(const TraceOptions& options);

  // Sends what there is, until `deadline`, and drops the rest. Waits a moment longer at most.
  void Stop(TimePoint deadline);

  bool on() const { return on_.load(std::memory_order_acquire); }

  // What to fill for a call with this parent, if there is one; null: it is not sampled. `name` must
  // be a literal.
  std::unique_ptr<RequestTrace> Begin(const std::optional<TraceContext>& parent,
                                      std::string_view name) const;

  // The call has ended.
  void End(std::unique_ptr<RequestTrace> trace);

 private:
  void Run();

  TraceMetrics& metrics_;

  // Constant after Start.
  TraceOptions options_;
  std::optional<Sampler> sampler_;
  Resource resource_;
  std::unique_ptr<SpanQueue> queue_;
  std::unique_ptr<OtlpExporter> exporter_;

  std::atomic<bool> on_ = false;

  Mutex mu_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // Run

  std::thread thread_;  // last
};

}  // namespace castor::server
