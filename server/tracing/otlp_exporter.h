// Sends spans to a collector: OTLP over gRPC, one call at a time.
//
// Export and its failures cost the thread that calls it, and nobody else: a collector that is away,
// hangs or refuses costs spans. What may be tried again is, with growing pauses, until `give_up`.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/base/time.h"
#include "server/metrics_traces.h"
#include "server/tracing/export_result.h"
#include "server/tracing/otlp_writer.h"
#include "server/tracing/trace_options.h"

namespace castor::server {

class OtlpExporter {
 public:
  // Reads the authorities; does not connect yet. `metrics` must outlive it.
  static absl::StatusOr<std::unique_ptr<OtlpExporter>> Open(const TraceOptions& options,
                                                            TraceMetrics& metrics);

  // Sends a request of `spans` spans. Returns when the collector has taken or refused it, or when
  // there is no more time. One thread.
  void Export(OtlpMessage request, int64_t spans);

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
  ExportResult Call(const grpc::ByteBuffer& request, TimePoint until);
  // False if it is time to end.
  bool Pause(std::chrono::nanoseconds time, TimePoint until);
  void Failed(const ExportResult& result);
  void Succeeded();

  TimePoint end() {
    MutexLock lock(mu_);
    return end_;
  }

  const TraceOptions options_;
  const std::string authorities_;
  TraceMetrics& metrics_;

  // The exporting thread's.
  std::unique_ptr<grpc::GenericStub> stub_;
  bool failing_ = false;

  Mutex mu_;
  CondVar changed_;
  TimePoint end_ ABSL_GUARDED_BY(mu_) = TimePoint::max();
  grpc::ClientContext* calling_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace castor::server
