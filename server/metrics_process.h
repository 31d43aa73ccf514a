// The process_* metrics that every Prometheus client library offers, read from /proc/self when
// someone scrapes; prometheus-cpp has none. The log's counter of dropped lines rides along.
#pragma once

#include <prometheus/collectable.h>

#include <memory>

namespace castor::server {

// Thread-safe. What /proc does not tell (on other systems) is left out.
std::shared_ptr<prometheus::Collectable> MakeProcessCollector();

}  // namespace castor::server
