// The process_* metrics that every Prometheus client library offers, read from /proc/self when
// someone scrapes; prometheus-cpp has none. Also the log's counter of dropped lines.
#pragma once

#include <prometheus/collectable.h>

#include <memory>

namespace castor::server {

// Thread-safe. What /proc does not provide (on other systems) is left out.
std::shared_ptr<prometheus::Collectable> MakeProcessCollector();

}  // namespace castor::server
