// Traces: which calls are sampled, and the thread that turns what is kept of them into spans and
// sends those to a collector.
//
// A sampled request costs its own threads the filling of a RequestTrace and a push under a lock,
// less than a microsecond; one that is not costs the look at its headers. What the queue has no
// room for is dropped and counted. A collector that is away, hangs or refuses costs spans, and the
// thread's time: what may be tried again is, with growing pauses, until `give_up_after`.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "engine/base/time.h"
#include "server/metrics/metrics_traces.h"
#include "server/tracing/otlp.h"
#include "server/tracing/request_spans.h"
#include "server/tracing/request_trace.h"
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
  using Requests = std::vector<std::unique_ptr<RequestTrace>>;

  void Run(const Attributes& about);
  // Waits until a batch is full, or for `gather`, and takes what there is. After Stop it does not
  // wait; false then, once nothing is left.
  bool Take(Requests* taken);
  // Returns when the collector has taken or refused `spans` spans, or there is no more time.
  void Export(const otlp::ExportTraceServiceRequest& request, int64_t spans);
  // One attempt, ended by `until`, or at the end of all.
  ExportResult Call(const otlp::ExportTraceServiceRequest& request, TimePoint until);
  // False if it is time to end.
  bool Pause(std::chrono::nanoseconds time, TimePoint until);

  TraceMetrics& metrics_;

  // Constant after Start.
  TraceOptions options_;
  std::string authorities_;
  std::optional<Sampler> sampler_;

  std::atomic<bool> on_ = false;

  // The thread's.
  std::unique_ptr<otlp::TraceService::Stub> collector_;  // null: not connected
  bool failing_ = false;                                 // so that the log says it once

  Mutex mu_;
  CondVar changed_;
  Requests waiting_ ABSL_GUARDED_BY(mu_);                  // for the thread
  TimePoint end_ ABSL_GUARDED_BY(mu_) = TimePoint::max();  // of the thread, known from Stop on

  std::thread thread_;  // last
};

}  // namespace castor::server
