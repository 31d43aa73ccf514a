// Positions as sinusoids (Vaswani et al. 2017, arXiv 1706.03762, section 3.5).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace castor::encoder {

// [positions, hidden], float32 on the CPU: element 2 i of position p is the sine, element 2 i + 1
// the cosine of p / 10000^(2 i / hidden).
at::Tensor Sinusoids(int64_t positions, int64_t hidden);

}  // namespace castor::encoder
