// The terms of all tenants, which may be replaced at any time. Those that are not named have the
// default ones.
//
// Thread-safe, and as its lock is taken under others: nothing is allocated or freed while it is
// held, and reading cannot fail.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "engine/base/mutex.h"
#include "engine/tenant_terms.h"

namespace castor {

class TenantTable {
 public:
  using Terms = std::map<std::string, TenantTerms>;

  explicit TenantTable(Terms terms = {}) { Set(std::move(terms)); }

  // Replaces all terms. A weight out of range becomes the nearest that is not, one that is no
  // number 1, and a quota below 0 none: the order of service would not survive them.
  void Set(Terms terms) noexcept;

  TenantTerms of(const std::string& tenant) const noexcept {
    MutexLock lock(mu_);
    return Find(tenant);
  }
  double WeightOf(const std::string& tenant) const noexcept {
    MutexLock lock(mu_);
    return Find(tenant).weight;
  }

  // Rises after each replacement: whoever keeps a weight looks here whether to read it again.
  uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }

 private:
  TenantTerms Find(const std::string& tenant) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto found = terms_.find(tenant);
    return found == terms_.end() ? TenantTerms() : found->second;
  }

  mutable Mutex mu_;
  Terms terms_ ABSL_GUARDED_BY(mu_);
  std::atomic<uint64_t> version_ = 0;
};

using TenantTablePtr = std::shared_ptr<const TenantTable>;

}  // namespace castor
