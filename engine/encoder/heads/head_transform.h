// The part of a head before its last layer: a dense layer with an activation and a LayerNorm, each
// of which may be missing.
//
// Immutable; used on the engine thread of the device that has the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/directory/weights.h"
#include "engine/encoder/heads/head_layout.h"
#include "engine/encoder/network/layers.h"

namespace castor::encoder {

class HeadTransform {
 public:
  HeadTransform() = default;

  int64_t elements() const { return dense_.has_value() ? dense_->elements() : 0; }

  // [rows, hidden] of the weights' type.
  at::Tensor operator()(const at::Tensor& rows) const;

 private:
  friend HeadTransform TakeTransform(ConfigReader& config, WeightReader& weights,
                                     const TransformNames& names, double epsilon, int64_t hidden);

  std::optional<Linear> dense_;
  Activation activation_ = Activation::kTanh;
  std::optional<LayerNorm> norm_;
};

// Errors go to the readers.
HeadTransform TakeTransform(ConfigReader& config, WeightReader& weights,
                            const TransformNames& names, double epsilon, int64_t hidden);

}  // namespace castor::encoder
