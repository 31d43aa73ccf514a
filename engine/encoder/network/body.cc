#include "engine/encoder/network/body.h"

namespace castor::encoder {

attention::Spec GlobalAttention(const BodyInfo& info, DType dtype, const Kernel& kernel) {
  attention::Spec spec = SelfAttentionSpec(dtype, info.width(), info.heads, kernel);
  if (info.cast.has_value()) {
    spec.kernel = *info.cast;
    spec.surrogates = info.surrogates;
  }
  if (info.causal) spec.kernel = Vanilla{.causal = true};
  if (info.key_value_heads > 0) spec.kv_heads = info.key_value_heads;
  spec.bias = info.bias;
  spec.softcap = info.softcap;
  if (info.softmax_scale != 0) spec.softmax_scale = info.softmax_scale;
  return spec;
}

attention::Spec LocalAttention(const BodyInfo& info, DType dtype) {
  attention::Spec spec = GlobalAttention(info, dtype, Vanilla{});
  spec.window = attention::SymmetricWindow(info.window);
  return spec;
}

std::vector<AttentionLayers> AttentionLayersOf(const BodyInfo& info, DType dtype,
                                               const Kernel& kernel) {
  std::vector<AttentionLayers> layers;
  const int64_t global = info.layers - info.local_layers;
  if (global > 0) layers.push_back({GlobalAttention(info, dtype, kernel), global});
  if (info.local_layers > 0) layers.push_back({LocalAttention(info, dtype), info.local_layers});
  return layers;
}

}  // namespace castor::encoder
