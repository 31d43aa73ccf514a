// What is sampled when someone scrapes, as Prometheus families. All thread-safe.
#pragma once

#include <prometheus/collectable.h>

#include <memory>

#include "engine/engine.h"

namespace castor::server {

// The engine's own counters and histograms; and which memory is whose: models' weights, what
// running batches hold, what the allocators keep, and the bound on it all. `engine` must outlive
// the collector.
std::shared_ptr<prometheus::Collectable> MakeEngineCollector(const Engine& engine);

// The process_* metrics that every Prometheus client library offers, read from /proc/self;
// prometheus-cpp has none. What /proc does not provide (on other systems) is left out. Also the
// log's counter of dropped lines.
std::shared_ptr<prometheus::Collectable> MakeProcessCollector();

}  // namespace castor::server
