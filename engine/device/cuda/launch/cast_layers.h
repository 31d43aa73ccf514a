// The distinct CAST layers of a batch. Pure; any thread may call it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/attention/problem.h"

namespace castor {

struct BatchLayers {
  std::vector<const std::byte*> layers;    // host memory, [N_c, heads, head_dim] each
  std::vector<int32_t> layer_of_sequence;  // over all requests' sequences
};

// Every layer once, in the order of first use: requests that name a loaded layer share its memory,
// and requests that bring their own surrogate tokens have memory of their own.
BatchLayers DistinctLayers(std::span<const attention::Problem> requests, int64_t layer_bytes);

}  // namespace castor
