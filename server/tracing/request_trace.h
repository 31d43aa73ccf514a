// The record of one sampled request until its spans are written: times, sizes and how it ended.
// Requests that are not sampled have none.
//
// For one thread at a time. Made when the call's headers have arrived, filled on the request's way
// through the server, handed to the Tracer when its answer is known.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/request.h"
#include "server/tracing/trace_context.h"

namespace castor::server {

// How far a request came that was not answered OK.
enum class Stage {
  kCall,       // before its message: bounds, who calls, a draining server
  kDecode,     // its bytes
  kAdmission,  // the engine's checks and budgets
  kEngine,     // admitted: waiting or running
  kAnswer,     // its output in shared memory
};

struct RequestTrace {
  TraceContext own;       // of its SERVER span
  SpanId parent{};        // the caller's span; zero: this is the trace's first
  std::string state;      // the caller's tracestate
  std::string_view name;  // "castor.v1.AttentionService/Attend", a literal

  TimePoint received;
  Stage stage = Stage::kCall;
  TimePoint submitted;  // decoded, and given to the engine; from Stage::kAdmission on
  TimePoint completed;  // the engine has answered
  TimePoint ended;      // the answer is encoded, or the refusal is

  // From the engine's report, if there was one.
  bool ran = false;
  Timing timing;
  BatchReport batch;
  std::string device;
  std::string backend;
  double predicted_us = 0;
  int rejected_kernels = 0;
  int64_t tokens = 0;  // of this request

  std::string_view kernel;  // of a closed set; empty: none was chosen
  std::string model;        // loaded; empty: none
  std::string code;         // "OK", "RESOURCE_EXHAUSTED"
  bool is_error = false;    // by the conventions of OpenTelemetry, for servers
  std::string_view reason;  // "QUEUE_FULL"; empty: OK
  std::string message;      // the refusal's
  std::string request_id;   // printable
};

// The tokens of a request by its answer.
int64_t TokensOf(const AttentionResult& result);
int64_t TokensOf(const EncodeResult& result);

// Takes what the report says.
void NoteReport(const ExecutionReport& report, int64_t tokens, RequestTrace* trace);

// As many spans as it becomes.
int SpanCount(const RequestTrace& trace);

// Which traces are recorded, and where they go.
struct TraceOptions {
  // ---- flags
  std::string endpoint;  // HOST:PORT of a collector that speaks OTLP over gRPC; empty: no traces
  bool tls = false;      // to the collector
  double sample = 0.01;  // of the traces that begin here

  // ---- no flags
  std::string ca;  // OTEL_EXPORTER_OTLP_CERTIFICATE, authorities in PEM; empty: the system's
  size_t max_queued_requests = 8192;                // of at most 8 spans and 4 KiB each
  size_t max_batch_requests = 256;                  // in one export
  std::chrono::milliseconds export_interval{1000};  // between exports, unless one is full
  std::chrono::milliseconds export_timeout{10000};  // of one call
  std::chrono::milliseconds first_backoff{1000};    // after a call that may be tried again
  std::chrono::milliseconds max_backoff{5000};
  std::chrono::milliseconds give_up_after{30000};  // then the spans of that export are dropped
};

}  // namespace castor::server
