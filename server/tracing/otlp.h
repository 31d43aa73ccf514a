// OTLP over gRPC: what goes with the spans, a collector, and what its answers mean.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"
#include "server/tracing/trace_options.h"

namespace castor::server {

namespace otlp = opentelemetry::proto::collector::trace::v1;

// What the spans say about the process that sends them.
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
    kRefused,   // for good
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

}  // namespace castor::server
