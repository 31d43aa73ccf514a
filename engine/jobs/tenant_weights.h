// Each tenant's share of the device, relative to the others'. Constant.
#pragma once

#include <map>
#include <string>
#include <utility>

namespace castor {

class TenantWeights {
 public:
  TenantWeights() = default;
  // Requires weights above 0.
  explicit TenantWeights(std::map<std::string, double> weights) : weights_(std::move(weights)) {}

  // 1 unless it was given.
  double of(const std::string& tenant) const {
    const auto found = weights_.find(tenant);
    return found == weights_.end() ? 1 : found->second;
  }

 private:
  std::map<std::string, double> weights_;
};

}  // namespace castor
