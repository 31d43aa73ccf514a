// Which memory is whose, as Prometheus families, sampled when someone scrapes: models' weights,
// what running batches hold, what the allocators keep, and the bound on it all.
#pragma once

#include <prometheus/collectable.h>

#include <memory>

#include "engine/engine.h"

namespace castor::server {

// Thread-safe. `engine` must outlive the collector.
std::shared_ptr<prometheus::Collectable> MakeMemoryCollector(const Engine& engine);

}  // namespace castor::server
