// Tenants' terms, for tests in which only weights matter.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/jobs/tenant_table.h"

namespace castor {

inline TenantTable::Terms Weights(const std::map<std::string, double>& weights) {
  TenantTable::Terms terms;
  for (const auto& [name, weight] : weights) terms[name].weight = weight;
  return terms;
}

inline std::shared_ptr<TenantTable> Weighted(const std::map<std::string, double>& weights) {
  return std::make_shared<TenantTable>(Weights(weights));
}

}  // namespace castor
