// How large a batch may become, and how long it may wait for more requests.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace castor {

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
