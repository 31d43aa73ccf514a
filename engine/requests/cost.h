// One request's share of the budgets (ledger/budgets.h).
#pragma once

#include <cstdint>

namespace castor {

struct Cost {
  int64_t requests = 1;
  int64_t tokens = 0;
  int64_t bytes = 0;  // of staging memory

  Cost& operator+=(const Cost& other) {
    requests += other.requests;
    tokens += other.tokens;
    bytes += other.bytes;
    return *this;
  }
  friend Cost operator-(const Cost& a, const Cost& b) {
    return {a.requests - b.requests, a.tokens - b.tokens, a.bytes - b.bytes};
  }
};

}  // namespace castor
