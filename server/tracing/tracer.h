// Traces: chooses the calls to record, and turns their records into spans on a thread of its own,
// which sends them to a collector.
//
// A sampled request costs its threads less than a microsecond: filling a RequestTrace, and a push
// under a lock. Other requests cost a look at their headers. Requests beyond the queue's bound are
// dropped and counted. A collector that is away, hangs or refuses costs spans, never a request:
// exports are retried, with growing pauses, until `give_up_after`.
#pragma once

#include <grpcpp/support/status.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"
#include "server/metrics/metrics_access.h"
#include "server/tracing/request_spans.h"
#include "server/tracing/request_trace.h"
#include "server/tracing/trace_context.h"

namespace castor::server {

// OTLP over gRPC: what goes with the spans, a collector, and what its answers mean.

namespace otlp = opentelemetry::proto::collector::trace::v1;

// The resource attributes: they describe the process that sends the spans.
using Attributes = std::map<std::string, std::string>;

// service.name (castor, unless OTEL_SERVICE_NAME says otherwise), service.version,
// service.instance.id (random), host.name, k8s.pod.name, k8s.namespace.name and k8s.node.name where
// POD_NAME, POD_NAMESPACE and NODE_NAME are set, and what OTEL_RESOURCE_ATTRIBUTES adds or
// replaces. Reads the environment: before other threads change it.
Attributes AttributesOfProcess();

// Takes "key=value,key=value", values percent-encoded. As OpenTelemetry demands, a text that is not
// so changes nothing: false. A bound on it is 8 KiB.
bool AddAttributes(const std::string& text, Attributes* attributes);

// By the rules of OTLP CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE and
// DATA_LOSS may be tried again, RESOURCE_EXHAUSTED if it says when.
struct ExportResult {
  enum class Kind {
    kTaken,     // all of it, or all but `rejected` spans, which are never sent again
    kTryAgain,  // not before `delay`, if there is one
    kRefused,   // permanently
  };
  Kind kind = Kind::kTaken;
  int64_t rejected = 0;
  std::optional<std::chrono::milliseconds> delay = {};
  std::string message = {};  // for the log
};
ExportResult ReadExportResult(const grpc::Status& status,
                              const otlp::ExportTraceServiceResponse& answer);

// To options.endpoint, with a connection of its own. `authorities` in PEM; empty: the system's.
std::unique_ptr<otlp::TraceService::Stub> ConnectToCollector(const TraceOptions& options,
                                                             const std::string& authorities);

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

  // A record for a call with this parent, if there is one; null: the call is not sampled. `name`
  // must be a literal.
  std::unique_ptr<RequestTrace> Begin(const std::optional<TraceContext>& parent,
                                      std::string_view name) const;

  // The call has ended.
  void End(std::unique_ptr<RequestTrace> trace);

 private:
  using Requests = std::vector<std::unique_ptr<RequestTrace>>;

  void Run(const Attributes& about);
  // Waits until a batch is full, or for the export interval, and takes the waiting requests. After
  // Stop it does not wait, and returns false once nothing is left.
  bool TakeRequests(Requests* taken);
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
