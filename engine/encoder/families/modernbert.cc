// ModernBERT: the pre-norm body with rotated queries and keys, where every n-th layer sees all
// tokens and the others a window.
// In the keys of transformers 4 or of 5.
#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/transformer.h"

namespace castor::encoder {
namespace {

// Checkpoints of a class with a head have the prefix.
constexpr std::string_view kModernBertPrefixes[] = {"", "model."};

constexpr TransformerNames kModernBertNames = {
    .prefixes = kModernBertPrefixes,
    .words = "embeddings.tok_embeddings",
    .norm = "embeddings.norm",
    .final_norm = "final_norm",
    .layers = "layers",
    .attention_norm = "attn_norm",
    .qkv = {.query = "attn.Wqkv"},
    .attention_output = "attn.Wo",
    .mlp_norm = "mlp_norm",
    .mlp = {.in = "mlp.Wi", .out = "mlp.Wo"},
};

// Whether each layer is local: transformers 5 lists them, 4 gives a period.
std::vector<bool> ReadLocalLayers(ConfigReader& config, int64_t layers) {
  std::vector<bool> local;
  const int64_t every = config.Int("global_attn_every_n_layers", 3, 1, kMaxLayers);
  for (int64_t i = 0; i < layers; ++i) local.push_back(i % every != 0);
  ReadLayerTypes(config, &local);
  return local;
}

void ReadRotations(ConfigReader& config, TransformerConfig* body) {
  RefuseOtherRotations(config);
  const double theta = ReadThetaOfKind(config, kGlobalLayer, "global_rope_theta", 160'000);
  body->rope = {.theta = theta};
  // In transformers 4, null means the other layers' theta.
  body->local_rope = {.theta = ReadThetaOfKind(config, kLocalLayer, "local_rope_theta",
                                               config.IsNull("local_rope_theta") ? theta : 10'000)};
}

// The number of tokens that a local layer sees on each side.
int64_t ReadWindow(ConfigReader& config) {
  const int64_t window = config.Int("local_attention", 128, 0, kMaxSize) / 2;
  if (config.Int("sliding_window", window, 0, kMaxSize) != window) {
    config.Fail("sliding_window", "contradicts local_attention, which is twice that");
  }
  return window;
}

}  // namespace

absl::StatusOr<FamilyModel> BuildModernBert(ConfigReader& config, WeightReader& weights) {
  TransformerConfig body;
  body.info = ReadBodyInfo(config, {.hidden = 768, .layers = 22, .heads = 12});
  body.info.window = ReadWindow(config);
  CheckRotated(config, "num_attention_heads", body.info.hidden / body.info.heads, {});
  body.local = ReadLocalLayers(config, body.info.layers);
  body.info.local_layers = std::count(body.local.begin(), body.local.end(), true);
  if (body.info.local_layers == body.info.layers) body.info.kernels = {KernelName::kVanilla};
  ReadRotations(config, &body);
  body.words = ReadSize(config, "vocab_size", 50368);
  body.epsilon = ReadEpsilon(config, "norm_eps", 1e-5);
  body.pre_norm = true;
  body.norm_bias = config.Bool("norm_bias", false);
  body.qkv_bias = body.attention_output_bias = config.Bool("attention_bias", false);
  const bool mlp_bias = config.Bool("mlp_bias", false);
  body.mlp = {.width = ReadSize(config, "intermediate_size", 1152),
              .activation = ReadActivation(config, "hidden_activation"),
              .gated = true,
              .in_bias = mlp_bias,
              .out_bias = mlp_bias};
  InputRules rules{.vocabulary = body.words,
                   .max_tokens = ReadSize(config, "max_position_embeddings", 8192)};
  return BuildFamily(config, body, kModernBertNames, weights, std::move(rules), kModernBertHeads);
}

}  // namespace castor::encoder
