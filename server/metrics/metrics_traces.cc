#include "server/metrics/metrics_traces.h"

#include <prometheus/counter.h>

#include <array>

namespace castor::server {
namespace {

using prometheus::Counter;

constexpr std::array<const char*, kDroppedSpans> kDropReasons = {"queue_full", "export_failed",
                                                                 "refused", "rejected", "shutdown"};
constexpr std::array<const char*, kTraceExports> kExportResults = {"taken", "partly_taken",
                                                                   "failed", "refused"};

}  // namespace

struct TraceMetrics::Children {
  Counter* exported = nullptr;
  std::array<Counter*, kDroppedSpans> dropped{};
  std::array<Counter*, kTraceExports> exports{};
};

TraceMetrics::TraceMetrics(prometheus::Registry& registry) : children_(new Children) {
  children_->exported = &prometheus::BuildCounter()
                             .Name("castor_trace_spans_exported_total")
                             .Help("Spans accepted by the collector.")
                             .Register(registry)
                             .Add({});
  auto& dropped = prometheus::BuildCounter()
                      .Name("castor_trace_spans_dropped_total")
                      .Help("Spans that were lost, by reason.")
                      .Register(registry);
  for (size_t i = 0; i < kDropReasons.size(); ++i) {
    children_->dropped[i] = &dropped.Add({{"reason", kDropReasons[i]}});
  }
  auto& exports = prometheus::BuildCounter()
                      .Name("castor_trace_exports_total")
                      .Help("Calls to the collector, by result.")
                      .Register(registry);
  for (size_t i = 0; i < kExportResults.size(); ++i) {
    children_->exports[i] = &exports.Add({{"result", kExportResults[i]}});
  }
}

TraceMetrics::~TraceMetrics() = default;

void TraceMetrics::Exported(int64_t spans) {
  children_->exported->Increment(static_cast<double>(spans));
}

void TraceMetrics::Dropped(DroppedSpans reason, int64_t spans) {
  children_->dropped[static_cast<size_t>(reason)]->Increment(static_cast<double>(spans));
}

void TraceMetrics::Export(TraceExport result) {
  children_->exports[static_cast<size_t>(result)]->Increment();
}

}  // namespace castor::server
