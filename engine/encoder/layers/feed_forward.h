// The MLP of a layer: out(activation(in(x))), or, gated (Shazeer 2020, arXiv 2002.05202),
// out(activation(in(x)) * gate(x)): GeGLU with GELU, SwiGLU with SiLU.
//
// It may be a mixture of experts (Shazeer et al. 2017, arXiv 1701.06538): a router picks a few MLPs
// for each row, and their results are weighted and added.
//
// Immutable; used on the engine thread of the device that has the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/encoder/network/layers.h"
#include "engine/kernels/count.h"

namespace castor::encoder {

struct FeedForwardConfig {
  int64_t width = 0;  // of the activated rows
  Activation activation = Activation::kGeluErf;
  bool gated = false;
  bool in_bias = true;  // of `in` and of the gate
  bool out_bias = true;
  int64_t experts = 0;  // of which each row has `of_row`, with one bias for all; 0: one MLP
  int64_t of_row = 0;
};

// The names of a layer's weights, without ".weight" and ".bias".
struct FeedForwardNames {
  std::string_view in;
  // Empty: a gated MLP has both in one matrix, `in`: the activated half first, then the gate.
  std::string_view gate = {};
  std::string_view out;
  bool gate_first = false;  // in that matrix the gate comes first
  // A mixture's names. The router's is like the others; those of the experts' stacked matrices,
  // each [width, hidden], and of their bias are whole.
  std::string_view router = {};
  std::string_view experts_in = {};
  std::string_view experts_out = {};
  std::string_view experts_bias = {};
};

struct FeedForward {
  Linear in;    // [width, hidden]
  Linear gate;  // the same, if the MLP is gated
  Linear out;   // [hidden, width]
  Activation activation = Activation::kGeluErf;
  bool gated = false;

  // A mixture's parts; `in` and `out` are then unused.
  std::vector<FeedForward> experts = {};
  Linear router = {};    // [experts, hidden]; never in 8 bits, since it picks experts
  at::Tensor bias = {};  // [hidden]
  int64_t of_row = 0;

  at::Tensor operator()(const at::Tensor& x, const TaskRows& tasks = {}) const;  // [rows, hidden]

  // The elements that a row is multiplied with.
  int64_t elements() const;

  // The bytes that it allocates per row, its result included. `element`: the size of an element.
  kernels::Count row_bytes(int64_t element) const;

 private:
  at::Tensor Mix(const at::Tensor& x) const;
};

// Takes the weights of a layer whose names begin with `at`. Errors go to the reader.
FeedForward TakeFeedForward(WeightReader& weights, const std::string& at,
                            const FeedForwardNames& names, const FeedForwardConfig& config,
                            int64_t hidden);

}  // namespace castor::encoder
