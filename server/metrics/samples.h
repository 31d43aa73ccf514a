// Samples that are taken when someone scrapes, as Prometheus families.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/histogram.h"
#include "engine/engine.h"

namespace castor::server {

// Samples of one name follow one another, and are a family.
class Samples {
 public:
  using Labels = std::vector<prometheus::ClientMetric::Label>;

  template <typename Number>
  void Gauge(const char* name, const char* help, Number value, Labels labels = {}) {
    Add(name, help, prometheus::MetricType::Gauge, std::move(labels)).gauge.value =
        static_cast<double>(value);
  }

  template <typename Number>
  void Counter(const char* name, const char* help, Number value, Labels labels = {}) {
    Add(name, help, prometheus::MetricType::Counter, std::move(labels)).counter.value =
        static_cast<double>(value);
  }

  // With every `step`-th bound: the engine's are finer than a time series each is worth. Prometheus
  // wants cumulative counts, so no observation is lost.
  void Histogram(const char* name, const char* help, const HistogramSnapshot& snapshot,
                 size_t step = 1, Labels labels = {}) {
    auto& histogram =
        Add(name, help, prometheus::MetricType::Histogram, std::move(labels)).histogram;
    uint64_t cumulative = 0;
    for (size_t i = 0; i < snapshot.bounds.size(); ++i) {
      cumulative += snapshot.counts[i];
      if (i % step == 0) histogram.bucket.push_back({cumulative, snapshot.bounds[i]});
    }
    if (!snapshot.counts.empty()) cumulative += snapshot.counts.back();
    histogram.bucket.push_back({cumulative, std::numeric_limits<double>::infinity()});
    histogram.sample_count = cumulative;
    histogram.sample_sum = snapshot.sum;
  }

  std::vector<prometheus::MetricFamily> TakeFamilies() { return std::move(families_); }

 private:
  prometheus::ClientMetric& Add(const char* name, const char* help, prometheus::MetricType type,
                                Labels labels) {
    if (families_.empty() || families_.back().name != name) {
      families_.push_back({name, help, type, {}});
    }
    prometheus::ClientMetric& series = families_.back().metric.emplace_back();
    series.label = std::move(labels);
    return series;
  }

  std::vector<prometheus::MetricFamily> families_;
};

// The engine's own counters and histograms; and which memory is whose: models' weights, what
// running batches hold, what the allocators keep, and the bound on it all. `engine` must outlive
// the collector.
std::shared_ptr<prometheus::Collectable> MakeEngineCollector(const Engine& engine);

// The process_* metrics that every Prometheus client library offers, read from /proc/self;
// prometheus-cpp has none. What /proc does not provide (on other systems) is left out. Also the
// log's counter of dropped lines.
std::shared_ptr<prometheus::Collectable> MakeProcessCollector();

}  // namespace castor::server
