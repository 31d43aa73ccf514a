#include "engine/encoder/layers/attention_layers.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/base/error.h"

namespace castor::encoder {
namespace {

// "a window of 64 and a bias by position"
std::string PlacesOf(const attention::Spec& spec) {
  std::string places;
  if (spec.window.any()) places = "a window of " + std::to_string(spec.window.left);
  if (spec.bias.any()) {
    if (!places.empty()) places += " and ";
    places += "a bias by position";
  }
  if (spec.softcap > 0) places += places.empty() ? "capped scores" : " and capped scores";
  return places.empty() ? "all tokens in view" : places;
}

}  // namespace

attention::Spec SelfAttentionSpec(DType dtype, int64_t hidden, int64_t heads,
                                  const Kernel& kernel) {
  attention::Spec spec;
  spec.dtype = dtype;
  spec.heads = spec.kv_heads = std::max<int64_t>(1, heads);
  spec.head_dim = spec.value_dim = hidden / spec.heads;
  spec.softmax_scale = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, spec.head_dim)));
  spec.kernel = kernel;
  return spec;
}

std::vector<AttentionLayers> UniformAttention(const ModelInfo& info, const Kernel& kernel) {
  return {{.spec = SelfAttentionSpec(info.dtype, info.hidden_size, info.heads, kernel),
           .layers = info.layers}};
}

absl::Status CheckServed(std::span<const AttentionLayers> layers, const std::string& model,
                         std::span<const attention::Variant> variants) {
  for (const AttentionLayers& alike : layers) {
    const attention::Spec& spec = alike.spec;
    if (attention::FindVariant(variants, spec) != nullptr) continue;
    return MakeError(Reason::kKernelNotAvailable,
                     "model \"" + model + "\" has layers of attention in " +
                         std::string(NameOf(spec.dtype)) + " with head_dim " +
                         std::to_string(spec.head_dim) + " and " + PlacesOf(spec) +
                         ", and no kernel of this device runs it");
  }
  return absl::OkStatus();
}

}  // namespace castor::encoder
