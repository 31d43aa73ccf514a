// A gated MLP (Shazeer 2020, arXiv 2002.05202): out(activation(a) * b), where the rows of `in` give
// a and b side by side. GeGLU with GELU, SwiGLU with SiLU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/attention/count.h"
#include "engine/encoder/layers.h"

namespace castor::encoder {

struct GatedMlp {
  Linear in;   // [2 * intermediate, hidden]
  Linear out;  // [hidden, intermediate]
  Activation activation = Activation::kGeluErf;

  at::Tensor operator()(const at::Tensor& x) const;  // [rows, hidden]

  // What it allocates for a row of elements of this size, its result included, in bytes.
  attention::Count row_bytes(int64_t element) const;
};

}  // namespace castor::encoder
