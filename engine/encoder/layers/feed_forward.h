// The MLP of a layer: out(activation(in(x))), or, gated (Shazeer 2020, arXiv 2002.05202),
// out(activation(in(x)) * gate(x)): GeGLU with GELU, SwiGLU with SiLU.
//
// Immutable; used on the engine thread of the device that has the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/encoder/network/layers.h"
#include "engine/kernels/count.h"

namespace castor::encoder {

struct FeedForwardConfig {
  int64_t width = 0;  // of the activated rows
  Activation activation = Activation::kGeluErf;
  bool gated = false;
  bool in_bias = true;  // of `in` and of the gate
  bool out_bias = true;
};

// The names of a layer's weights, without ".weight" and ".bias".
struct FeedForwardNames {
  std::string_view in;
  // Empty: a gated MLP has both in one matrix, `in`: the activated half first, then the gate.
  std::string_view gate = {};
  std::string_view out;
  bool gate_first = false;  // in that matrix the gate comes first
};

struct FeedForward {
  Linear in;    // [width, hidden]
  Linear gate;  // the same, if the MLP is gated
  Linear out;   // [hidden, width]
  Activation activation = Activation::kGeluErf;
  bool gated = false;

  at::Tensor operator()(const at::Tensor& x) const;  // [rows, hidden]

  int64_t elements() const { return in.elements() + gate.elements() + out.elements(); }

  // The bytes that it allocates per row, its result included. `element`: the size of an element.
  kernels::Count row_bytes(int64_t element) const;
};

// Takes the weights of a layer whose names begin with `at`. Errors go to the reader.
FeedForward TakeFeedForward(WeightReader& weights, const std::string& at,
                            const FeedForwardNames& names, const FeedForwardConfig& config,
                            int64_t hidden);

}  // namespace castor::encoder
