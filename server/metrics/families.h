// Families of the registry, and those of their series that are looked up once: looking one up by
// its labels locks and hashes. The registry owns all of them.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <array>
#include <cstddef>

namespace castor::server {

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

}  // namespace castor::server
