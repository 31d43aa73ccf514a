// Tenants' terms, for tests in which only weights matter.
#pragma once

#include <map>
#include <string>

#include "engine/engine.h"

namespace castor {

inline std::map<std::string, TenantTerms> Weights(const std::map<std::string, double>& weights) {
  std::map<std::string, TenantTerms> terms;
  for (const auto& [name, weight] : weights) terms[name].weight = weight;
  return terms;
}

}  // namespace castor
