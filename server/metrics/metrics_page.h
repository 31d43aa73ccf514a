// The page that Prometheus reads, in either of its formats:
//
//   kText          Prometheus's text format 0.0.4, for whoever asks for nothing else
//   kOpenMetrics   OpenMetrics 1.0.0, which has exemplars
//
// Both formats name the same series: a bucket's `le` is a float with a point or an
// exponent in both ("1.0"), as OpenMetrics recommends and Prometheus 3 stores it.
#pragma once

#include <prometheus/metric_family.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/mutex.h"
#include "server/tracing/trace_context.h"

namespace castor::server {

enum class PageFormat { kText, kOpenMetrics };

// What the header Content-Type says.
const char* ContentTypeOf(PageFormat format);

// The format for a scraper whose header Accept is this: OpenMetrics for whoever names it, as
// Prometheus does; scrapers tell what they got by its type.
PageFormat FormatFor(std::string_view accept);

// Whether a scraper with this header Accept-Encoding takes gzip, as Prometheus does; and a page for
// it.
bool TakesGzip(std::string_view accept_encoding);
std::string Gzip(std::string_view page);

struct Exemplar {
  double value = 0;
  std::chrono::system_clock::time_point at;
  TraceContext of;
};

// The exemplars of a histogram: for each bucket the last sampled request that fell into it.
//
// Any thread. Only sampled requests come here, and scrapes: one short lock.
class Exemplars {
 public:
  // `bounds`: the buckets' upper ones, ascending, without the last, infinite one.
  explicit Exemplars(const std::vector<double>& bounds)
      : bounds_(bounds), last_(bounds.size() + 1) {}

  void Add(double value, const TraceContext& of);

  // Of each bucket, the infinite one last.
  std::vector<std::optional<Exemplar>> Read() const;

 private:
  const std::vector<double> bounds_;

  mutable Mutex mu_;
  std::vector<std::optional<Exemplar>> last_ ABSL_GUARDED_BY(mu_);
};

// The exemplars of the buckets of one series; empty: it has none.
using ExemplarsOf = std::function<std::vector<std::optional<Exemplar>>(
    const prometheus::MetricFamily& family, const prometheus::ClientMetric& series)>;

// Counters must be named `_total`.
std::string WritePage(PageFormat format, const std::vector<prometheus::MetricFamily>& families,
                      const ExemplarsOf& exemplars);

}  // namespace castor::server
