// How large a batch may become, and how long it may wait to become so.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace castor {

struct BatchLimits {
  int64_t max_tokens = 0;
  int64_t max_requests = 0;
  std::chrono::microseconds delay{0};  // that the head of a group waits for company; 0: it does not

  // Whether requests of so many tokens in all make a full batch.
  bool Reached(int64_t tokens, size_t requests) const {
    return tokens >= max_tokens || static_cast<int64_t>(requests) >= max_requests;
  }
};

}  // namespace castor
