#include "server/metrics/metrics_access.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>

#include <array>
#include <string>

namespace castor::server {
namespace {

using prometheus::Counter;
using prometheus::Gauge;

constexpr std::array<std::string_view, kRefusedCallers> kReasons = {
    "no_credential", "malformed", "unknown_token", "unknown_certificate", "expired", "not_allowed"};
constexpr std::array<std::string_view, kReloaded> kWhat = {"certificates", "callers"};

}  // namespace

std::string_view NameOf(RefusedCaller reason) { return kReasons[static_cast<size_t>(reason)]; }

std::string_view NameOf(Reloaded what) { return kWhat[static_cast<size_t>(what)]; }

struct AccessMetrics::Families {
  std::array<Counter*, kRefusedCallers> refused_callers{};
  prometheus::Family<Counter>& reloads;
  prometheus::Family<Gauge>& standing;
  prometheus::Family<Gauge>& expiry;
};

AccessMetrics::AccessMetrics(prometheus::Registry& registry)
    : families_(new Families{
          .reloads = prometheus::BuildCounter()
                         .Name("castor_reloads_total")
                         .Help("Changed files that were loaded, or refused as wrong.")
                         .Register(registry),
          .standing =
              prometheus::BuildGauge()
                  .Name("castor_reload_refused")
                  .Help("1 while the files on disk are refused and older content is in use.")
                  .Register(registry),
          .expiry = prometheus::BuildGauge()
                        .Name("castor_certificate_expiry_timestamp_seconds")
                        .Help("Expiry of the certificates in use; the earliest of several.")
                        .Register(registry)}) {
  auto& refused = prometheus::BuildCounter()
                      .Name("castor_callers_refused_total")
                      .Help("Calls and scrapes refused for their credentials, by reason.")
                      .Register(registry);
  for (size_t i = 0; i < kReasons.size(); ++i) {
    families_->refused_callers[i] = &refused.Add({{"reason", std::string(kReasons[i])}});
  }
}

AccessMetrics::~AccessMetrics() = default;

void AccessMetrics::CallerRefused(RefusedCaller reason) {
  families_->refused_callers[static_cast<size_t>(reason)]->Increment();
}

// Families return the same series for the same labels. Files change rarely enough to look it up.
void AccessMetrics::Watched(Reloaded what) {
  for (const char* result : {"taken", "refused"}) {
    families_->reloads.Add({{"what", std::string(NameOf(what))}, {"result", result}});
  }
  SetStanding(what, false);
}

void AccessMetrics::Taken(Reloaded what) {
  families_->reloads.Add({{"what", std::string(NameOf(what))}, {"result", "taken"}}).Increment();
}

void AccessMetrics::Refused(Reloaded what) {
  families_->reloads.Add({{"what", std::string(NameOf(what))}, {"result", "refused"}}).Increment();
}

void AccessMetrics::SetStanding(Reloaded what, bool refused) {
  families_->standing.Add({{"what", std::string(NameOf(what))}}).Set(refused ? 1 : 0);
}

void AccessMetrics::SetExpiry(std::string_view which, std::chrono::system_clock::time_point ends) {
  const std::chrono::duration<double> since = ends.time_since_epoch();
  families_->expiry.Add({{"certificate", std::string(which)}}).Set(since.count());
}

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
