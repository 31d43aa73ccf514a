// Metrics of access: callers refused, files reloaded or refused, certificates' expiry.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace castor::server {

// Families of the registry, which owns them and their series. Series are looked up once and kept:
// to look one up by its labels locks and hashes.
inline prometheus::Family<prometheus::Counter>& Counters(prometheus::Registry& registry,
                                                         const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

inline prometheus::Family<prometheus::Gauge>& Gauges(prometheus::Registry& registry,
                                                     const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

// One for each value of the label.
template <size_t kValues>
std::array<prometheus::Counter*, kValues> CountersBy(const char* label,
                                                     const std::array<const char*, kValues>& values,
                                                     prometheus::Family<prometheus::Counter>& in) {
  std::array<prometheus::Counter*, kValues> counters{};
  for (size_t i = 0; i < kValues; ++i) counters[i] = &in.Add({{label, values[i]}});
  return counters;
}

// Why a caller was refused.
enum class RefusedCaller {
  kNoCredential,
  kMalformed,  // not a bearer token, or several
  kUnknownToken,
  kUnknownCertificate,
  kExpired,
  kNotAllowed,  // it is known, and may not
};
inline constexpr int kRefusedCallers = 6;
std::string_view NameOf(RefusedCaller reason);  // "no_credential"

// Content of files that are reloaded while the server runs.
enum class Reloaded { kCertificates, kCallers };
inline constexpr int kReloaded = 2;
std::string_view NameOf(Reloaded what);  // "certificates"

// Any thread may call anything. Series exist only for files that are in use.
class AccessMetrics {
 public:
  explicit AccessMetrics(prometheus::Registry& registry);

  void CallerRefused(RefusedCaller reason);

  // From now on there are series about these files.
  void Watched(Reloaded what);
  void Taken(Reloaded what);
  // Counts changed files that were refused. SetStanding says whether the files on disk are refused
  // at present.
  void Refused(Reloaded what);
  void SetStanding(Reloaded what, bool refused);

  // When the certificates end; `which` is "server" or "client_ca".
  void SetExpiry(std::string_view which, std::chrono::system_clock::time_point ends);

 private:
  prometheus::Counter& Reloads(Reloaded what, const char* result);

  const std::array<prometheus::Counter*, kRefusedCallers> refused_callers_;
  prometheus::Family<prometheus::Counter>& reloads_;
  prometheus::Family<prometheus::Gauge>& standing_;
  prometheus::Family<prometheus::Gauge>& expiry_;
};

// Why spans were lost.
enum class DroppedSpans {
  kQueueFull,
  kFailed,    // the collector was away, or silent, for too long
  kRefused,   // the collector refused an export permanently
  kRejected,  // it took the export but not these spans
  kShutdown,
};
inline constexpr int kDroppedSpans = 5;

// How a call to the collector ended.
enum class TraceExport { kTaken, kPartlyTaken, kFailed, kRefused };
inline constexpr int kTraceExports = 4;

// Counts spans that were sent or lost. Any thread.
class TraceMetrics {
 public:
  explicit TraceMetrics(prometheus::Registry& registry);

  void Exported(int64_t spans);
  void Dropped(DroppedSpans reason, int64_t spans);
  void Export(TraceExport result);

 private:
  prometheus::Counter& exported_;
  const std::array<prometheus::Counter*, kDroppedSpans> dropped_;
  const std::array<prometheus::Counter*, kTraceExports> exports_;
};

}  // namespace castor::server
