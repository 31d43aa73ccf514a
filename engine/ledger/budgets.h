// What bounds everything admitted and not yet answered: requests, tokens and bytes of staging
// memory, for the engine and, as a quota, for a tenant; and predicted time.
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

// The most that a tenant may have admitted.
inline Cost QuotaOf(const TenantTerms& terms) {
  const auto or_any = [](int64_t quota) {
    return quota == 0 ? std::numeric_limits<int64_t>::max() : quota;
  };
  return {or_any(terms.max_queued_requests), or_any(terms.max_queued_tokens),
          or_any(terms.max_queued_bytes)};
}

// One budget, for what is done to each of them.
struct BudgetPart {
  int64_t cost;
  int64_t used;
  int64_t budget;
  const char* name;

  int64_t missing() const { return cost - (budget - used); }  // no sum can overflow
  // The part of what is used that has to be given back first.
  double missing_part() const {
    return static_cast<double>(missing()) / static_cast<double>(used > 0 ? used : 1);
  }
};

inline std::array<BudgetPart, 3> PartsOf(const Cost& cost, const Cost& used, const Cost& budget) {
  return {{{cost.requests, used.requests, budget.requests, "requests"},
           {cost.tokens, used.tokens, budget.tokens, "tokens"},
           {cost.bytes, used.bytes, budget.bytes, "bytes"}}};
}

// How large a batch may become, and how long it may wait for more requests.
struct BatchLimits {
  int64_t max_tokens = 0;
  int64_t max_requests = 0;
  // For how long the first of those that may share a batch waits for it to be full.
  std::chrono::microseconds delay{0};

  // Whether a batch of `requests` requests with `tokens` tokens in all is full.
  bool Reached(int64_t tokens, size_t requests) const {
    return tokens >= max_tokens || static_cast<int64_t>(requests) >= max_requests;
  }
};

}  // namespace castor
