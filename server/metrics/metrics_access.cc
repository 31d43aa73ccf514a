#include "server/metrics/metrics_access.h"

#include <string>

namespace castor::server {
namespace {

constexpr std::array<const char*, kRefusedCallers> kReasons = {
    "no_credential", "malformed", "unknown_token", "unknown_certificate", "expired", "not_allowed"};
constexpr std::array<const char*, kReloaded> kWhat = {"certificates", "callers"};
constexpr std::array<const char*, kDroppedSpans> kDropReasons = {"queue_full", "export_failed",
                                                                 "refused", "rejected", "shutdown"};
constexpr std::array<const char*, kTraceExports> kExportResults = {"taken", "partly_taken",
                                                                   "failed", "refused"};

}  // namespace

std::string_view NameOf(RefusedCaller reason) { return kReasons[static_cast<size_t>(reason)]; }

std::string_view NameOf(Reloaded what) { return kWhat[static_cast<size_t>(what)]; }

AccessMetrics::AccessMetrics(prometheus::Registry& registry)
    : refused_callers_(
          CountersBy("reason", kReasons,
                     Counters(registry, "castor_callers_refused_total",
                              "Calls and scrapes refused for their credentials, by reason."))),
      reloads_(Counters(registry, "castor_reloads_total",
                        "Changed files that were loaded, or refused as wrong.")),
      standing_(Gauges(registry, "castor_reload_refused",
                       "1 while the files on disk are refused and older content is in use.")),
      expiry_(Gauges(registry, "castor_certificate_expiry_timestamp_seconds",
                     "Expiry of the certificates in use; the earliest of several.")) {}

void AccessMetrics::CallerRefused(RefusedCaller reason) {
  refused_callers_[static_cast<size_t>(reason)]->Increment();
}

// Families return the same series for the same labels. Files change rarely enough to look it up.
prometheus::Counter& AccessMetrics::Reloads(Reloaded what, const char* result) {
  return reloads_.Add({{"what", std::string(NameOf(what))}, {"result", result}});
}

void AccessMetrics::Watched(Reloaded what) {
  for (const char* result : {"taken", "refused"}) Reloads(what, result);
  SetStanding(what, false);
}

void AccessMetrics::Taken(Reloaded what) { Reloads(what, "taken").Increment(); }

void AccessMetrics::Refused(Reloaded what) { Reloads(what, "refused").Increment(); }

void AccessMetrics::SetStanding(Reloaded what, bool refused) {
  standing_.Add({{"what", std::string(NameOf(what))}}).Set(refused ? 1 : 0);
}

void AccessMetrics::SetExpiry(std::string_view which, std::chrono::system_clock::time_point ends) {
  const std::chrono::duration<double> since = ends.time_since_epoch();
  expiry_.Add({{"certificate", std::string(which)}}).Set(since.count());
}

TraceMetrics::TraceMetrics(prometheus::Registry& registry)
    : exported_(Counters(registry, "castor_trace_spans_exported_total",
                         "Spans accepted by the collector.")
                    .Add({})),
      dropped_(CountersBy("reason", kDropReasons,
                          Counters(registry, "castor_trace_spans_dropped_total",
                                   "Spans that were lost, by reason."))),
      exports_(CountersBy(
          "result", kExportResults,
          Counters(registry, "castor_trace_exports_total", "Calls to the collector, by result."))) {
}

void TraceMetrics::Exported(int64_t spans) { exported_.Increment(static_cast<double>(spans)); }

void TraceMetrics::Dropped(DroppedSpans reason, int64_t spans) {
  dropped_[static_cast<size_t>(reason)]->Increment(static_cast<double>(spans));
}

void TraceMetrics::Export(TraceExport result) {
  exports_[static_cast<size_t>(result)]->Increment();
}

}  // namespace castor::server
