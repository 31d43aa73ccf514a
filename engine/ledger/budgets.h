// The bounds on all that is admitted and not yet answered: requests, tokens and bytes of staging
// memory, for the engine and, as quotas, for tenants; and predicted time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "engine/engine.h"
#include "engine/requests/staging.h"

namespace castor {

struct Budgets {
  Cost most;
  // The longest predicted time until a request begins, and of one request alone.
  std::chrono::microseconds queued_time = std::chrono::microseconds::max();
  std::chrono::microseconds request_time = std::chrono::microseconds::max();
};

// The maximum that a tenant may have admitted.
inline Cost QuotaOf(const TenantTerms& terms) {
  const auto or_any = [](int64_t quota) {
    return quota == 0 ? std::numeric_limits<int64_t>::max() : quota;
  };
  return {or_any(terms.max_queued_requests), or_any(terms.max_queued_tokens),
          or_any(terms.max_queued_bytes)};
}

// One of the budgets, and what a request would add to its use.
struct BudgetUse {
  int64_t cost;
  int64_t used;
  int64_t budget;
  const char* name;

  int64_t missing() const { return cost - (budget - used); }  // in an order that cannot overflow
  // The fraction of the use that must be given back first.
  double missing_fraction() const {
    return static_cast<double>(missing()) / static_cast<double>(used > 0 ? used : 1);
  }
};

inline std::array<BudgetUse, 3> UsesOf(const Cost& cost, const Cost& used, const Cost& budget) {
  return {{{cost.requests, used.requests, budget.requests, "requests"},
           {cost.tokens, used.tokens, budget.tokens, "tokens"},
           {cost.bytes, used.bytes, budget.bytes, "bytes"}}};
}

// Limits on a batch's size, and on its wait for more requests.
struct BatchLimits {
  int64_t max_tokens = 0;
  int64_t max_requests = 0;
  // How long the first request of a batch waits for the batch to fill up.
  std::chrono::microseconds delay{0};

  // Whether a batch of `requests` requests with `tokens` tokens in all is full.
  bool Reached(int64_t tokens, size_t requests) const {
    return tokens >= max_tokens || static_cast<int64_t>(requests) >= max_requests;
  }
};

}  // namespace castor
