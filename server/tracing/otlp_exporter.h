// Sends spans to a collector: OTLP over gRPC, one call at a time.
//
// Export and its failures cost the thread that calls it, and nobody else: a collector that is away,
// hangs or refuses costs spans. What may be tried again is, with growing pauses, until `give_up`.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/base/time.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"
#include "server/metrics/metrics_traces.h"
#include "server/tracing/trace_options.h"

namespace castor::server {

namespace otlp = opentelemetry::proto::collector::trace::v1;

// What a collector's answer to an export means, by the rules of OTLP: CANCELLED, DEADLINE_EXCEEDED,
// ABORTED, OUT_OF_RANGE, UNAVAILABLE and DATA_LOSS may be tried again, RESOURCE_EXHAUSTED if it
// says when.
struct ExportResult {
  enum class Kind {
    kTaken,     // all of it, or all but `rejected` spans, which are never sent again
    kTryAgain,  // not before `delay`, if there is one
    kRefused,   // for good
  };
  Kind kind = Kind::kTaken;
  int64_t rejected = 0;
  std::optional<std::chrono::milliseconds> delay;
  std::string message;  // for the log
};
ExportResult ReadExportResult(const grpc::Status& status,
                              const otlp::ExportTraceServiceResponse& answer);

class OtlpExporter {
 public:
  // Reads the authorities; does not connect yet. `metrics` must outlive it.
  static absl::StatusOr<std::unique_ptr<OtlpExporter>> Open(const TraceOptions& options,
                                                            TraceMetrics& metrics);

  // Sends a request of `spans` spans. Returns when the collector has taken or refused it, or when
  // there is no more time. One thread.
  void Export(const otlp::ExportTraceServiceRequest& request, int64_t spans);

  // For the end; any thread, return at once. No pause is made from now on that ends after `when`,
  // and what is exported later is dropped.
  void FinishBy(TimePoint when);
  // Ends the call that is under way.
  void Cancel();

 private:
  OtlpExporter(const TraceOptions& options, std::string authorities, TraceMetrics& metrics)
      : options_(options), authorities_(std::move(authorities)), metrics_(metrics) {}

  void Connect();
  // One attempt, ended by `until`.
  ExportResult Call(const otlp::ExportTraceServiceRequest& request, TimePoint until);
  // False if it is time to end.
  bool Pause(std::chrono::nanoseconds time, TimePoint until);

  TimePoint end() {
    MutexLock lock(mu_);
    return end_;
  }

  const TraceOptions options_;
  const std::string authorities_;  // in PEM; empty: the system's
  TraceMetrics& metrics_;
  std::unique_ptr<otlp::TraceService::Stub> stub_;  // null: not connected
  bool failing_ = false;                            // so that the log says it once

  Mutex mu_;
  CondVar changed_;
  TimePoint end_ ABSL_GUARDED_BY(mu_) = TimePoint::max();
  grpc::ClientContext* calling_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace castor::server
