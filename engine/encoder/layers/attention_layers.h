// The attention of an encoder's layers, by spec. A model's costs and memory, and whether a device
// can run it, follow from this.
//
// Plain values and pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/attention/problem.h"
#include "engine/attention/variants.h"
#include "engine/engine.h"

namespace castor::encoder {

// Layers with equal attention. A bias points into the model's memory.
struct AttentionLayers {
  attention::Spec spec = {};
  int64_t layers = 0;
};

// Attention with the scale 1 / sqrt(head_dim), and queries, keys and values of equal dims.
attention::Spec SelfAttentionSpec(DType dtype, int64_t hidden, int64_t heads, const Kernel& kernel);

// The attention of a model whose layers are all alike.
std::vector<AttentionLayers> UniformAttention(const ModelInfo& info, const Kernel& kernel);

// KERNEL_NOT_AVAILABLE, with the model's name, if one of the specs has no variant to run it.
absl::Status CheckServed(std::span<const AttentionLayers> layers, const std::string& model,
                         std::span<const attention::Variant> variants);

}  // namespace castor::encoder
