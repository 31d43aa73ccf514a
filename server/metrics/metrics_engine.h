// The engine's own counters and histograms as Prometheus families, sampled when someone scrapes.
#pragma once

#include <prometheus/collectable.h>

#include <memory>

#include "engine/engine.h"

namespace castor::server {

// Thread-safe. `engine` must outlive the collector.
std::shared_ptr<prometheus::Collectable> MakeEngineCollector(const Engine& engine);

}  // namespace castor::server
