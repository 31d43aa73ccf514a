// How traces are taken and where they go.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace castor::server {

struct TraceOptions {
  // ---- flags
  std::string endpoint;  // HOST:PORT of a collector that speaks OTLP over gRPC; empty: no traces
  bool tls = false;      // to the collector
  double sample = 0.01;  // of the traces that begin here

  // ---- no flags
  std::string ca;  // OTEL_EXPORTER_OTLP_CERTIFICATE, authorities in PEM; empty: the system's
  size_t max_queued_requests = 8192;                // of at most 8 spans and 4 KiB each
  size_t max_batch_requests = 256;                  // in one export
  std::chrono::milliseconds gather{1000};           // between exports, unless one is full
  std::chrono::milliseconds batch_settle{1000};     // from a batch's first request to its span
  std::chrono::milliseconds export_timeout{10000};  // of one call
  std::chrono::milliseconds first_backoff{1000};    // after a call that may be tried again
  std::chrono::milliseconds max_backoff{5000};
  std::chrono::milliseconds give_up_after{30000};  // then the spans of that export are dropped
};

}  // namespace castor::server
