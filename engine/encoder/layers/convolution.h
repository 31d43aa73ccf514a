// DeBERTa's convolution over tokens: the first layer's rows become norm(rows + activation(c)),
// where c convolves the layer's inputs. A sequence's neighbours count as zeros.
//
// Immutable; used on the engine thread of the device that has the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "absl/status/status.h"
#include "engine/encoder/layers/layer_norm.h"
#include "engine/encoder/layers/linear.h"
#include "engine/encoder/network/body.h"
#include "engine/kernels/count.h"

namespace castor::encoder {

struct ConvolutionConfig {
  int64_t reach = 0;  // tokens on each side
  Activation activation = Activation::kTanh;
  double epsilon = 0;  // of the norm

  int64_t taps() const { return 2 * reach + 1; }
};

struct Convolution {
  ConvolutionConfig config;
  Linear linear;  // [hidden, taps * hidden]: one product for all taps
  LayerNorm norm;

  // A copy of a layer's inputs as operator() takes them: [tokens + 1, hidden], the last row zeros.
  static at::Tensor Copy(const at::Tensor& x);

  // In place of `x`, the layer's rows. Checks the control between steps, and ends with its status.
  absl::Status operator()(const at::Tensor& inputs, const at::Tensor& x,
                          const BodyInputs& in) const;

  // The bytes that both take: of a token, and once.
  kernels::Count token_bytes(int64_t element) const;
  kernels::Count batch_bytes(int64_t element) const;
};

// Takes the weights by DeBERTa's names. Errors go to the reader.
Convolution TakeConvolution(WeightReader& weights, const ConvolutionConfig& config, int64_t hidden);

}  // namespace castor::encoder
