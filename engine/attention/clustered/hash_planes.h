// The random hyperplanes that hash the queries of clustered attention: the same for every head,
// sequence and device. Pure; any thread may call it.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/request.h"

namespace castor::attention {

struct PlaneNumbers {
  std::vector<float> normals;  // [bits, head_dim]
  std::vector<float> biases;   // [bits], zero without hash_bias
};

// Drawn from the seed of `parameters`. Requires a count of normals that memory can hold.
PlaneNumbers DrawPlanes(const Clustered& parameters, int64_t head_dim);

}  // namespace castor::attention
