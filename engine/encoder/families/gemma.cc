// Gemma: the pre-norm body with rotations, a gated MLP, RMSNorms that scale by 1 + their weight,
// and scaled word embeddings. Attention is causal. Several heads may share keys and values.
//
// Versions 2 and 3 have further norms after attention and after the MLP, and local layers between
// those that see all tokens. Version 2 caps scores. Version 3 normalises each query and key, and
// may look both ways, as EmbeddingGemma does. Reads the keys of transformers 4 or 5.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/transformer.h"
#include "engine/kernel_table.h"

namespace castor::encoder {
namespace {

// Checkpoints of a class with a head have the prefix.
constexpr std::string_view kGemmaPrefixes[] = {"", "model."};

constexpr TransformerNames kGemma1Names = {
    .prefixes = kGemmaPrefixes,
    .words = "embed_tokens",
    .final_norm = "norm",
    .layers = "layers",
    .attention_norm = "input_layernorm",
    .qkv = {.query = "self_attn.q_proj", .key = "self_attn.k_proj", .value = "self_attn.v_proj"},
    .attention_output = "self_attn.o_proj",
    .mlp_norm = "post_attention_layernorm",
    .mlp = {.in = "mlp.gate_proj", .gate = "mlp.up_proj", .out = "mlp.down_proj"},
};

constexpr TransformerNames NamesWithOutputNorms(bool norm_heads) {
  TransformerNames names = kGemma1Names;
  names.attention_output_norm = "post_attention_layernorm";
  names.mlp_norm = "pre_feedforward_layernorm";
  names.mlp_output_norm = "post_feedforward_layernorm";
  if (norm_heads) {
    names.qkv.query_norm = "self_attn.q_norm";
    names.qkv.key_norm = "self_attn.k_norm";
  }
  return names;
}
constexpr TransformerNames kGemma2Names = NamesWithOutputNorms(/*norm_heads=*/false);
constexpr TransformerNames kGemma3Names = NamesWithOutputNorms(/*norm_heads=*/true);

// The defaults that differ between the versions.
struct GemmaDefaults {
  int64_t words;
  int64_t hidden;
  int64_t layers;
  int64_t heads;
  int64_t key_value_heads;
  int64_t mlp_width;
  int64_t max_tokens;
  std::string_view activation_key = "hidden_activation";
};
constexpr GemmaDefaults kGemma1 = {.words = 256'000,
                                   .hidden = 3072,
                                   .layers = 28,
                                   .heads = 16,
                                   .key_value_heads = 16,
                                   .mlp_width = 24'576,
                                   .max_tokens = 8192,
                                   .activation_key = "hidden_act"};
constexpr GemmaDefaults kGemma2 = {.words = 256'000,
                                   .hidden = 2304,
                                   .layers = 26,
                                   .heads = 8,
                                   .key_value_heads = 4,
                                   .mlp_width = 9216,
                                   .max_tokens = 8192};
constexpr GemmaDefaults kGemma3 = {.words = 262'208,
                                   .hidden = 2304,
                                   .layers = 26,
                                   .heads = 8,
                                   .key_value_heads = 4,
                                   .mlp_width = 9216,
                                   .max_tokens = 131'072};

TransformerConfig ReadGemma(ConfigReader& config, const GemmaDefaults& defaults) {
  TransformerConfig body;
  body.info = {
      .hidden = ReadSize(config, "hidden_size", defaults.hidden),
      .layers = config.Int("num_hidden_layers", defaults.layers, 1, kMaxLayers),
      .heads = ReadSize(config, "num_attention_heads", defaults.heads),
      .head_dim = ReadSize(config, "head_dim", 256),
      .kernels = {KernelName::kVanilla},
      .causal = true,
  };
  CheckHeads(config, "num_attention_heads", body.info);
  body.info.key_value_heads = ReadKeyValueHeads(config, body.info.heads, defaults.key_value_heads);
  body.words = ReadSize(config, "vocab_size", defaults.words);
  body.embedding_scale = std::sqrt(static_cast<double>(body.info.hidden));
  body.mlp = {.width = ReadSize(config, "intermediate_size", defaults.mlp_width),
              .activation = ReadActivation(config, defaults.activation_key, "gelu_pytorch_tanh"),
              .gated = true,
              .in_bias = false,
              .out_bias = false};
  body.epsilon = ReadEpsilon(config, "rms_norm_eps", 1e-6);
  body.pre_norm = true;
  body.norm = NormKind::kRmsNormLessOne;
  body.qkv_bias = body.attention_output_bias = config.Bool("attention_bias", false);
  return body;
}

// transformers' masks and its kernels read different keys, so that answers depend on the kernel.
void RefuseBothWays(ConfigReader& config) {
  if (!config.Bool("is_causal", true)) config.Fail("is_causal", "must be true in this family");
  RefuseTrue(config, {"use_bidirectional_attention"}, "must be false in this family");
}

// Reads local layers: those that "layer_types" lists, else all but each `every`-th. Scores are
// scaled by a size of their own.
void ReadGemmaLayers(ConfigReader& config, int64_t every, TransformerConfig* body) {
  BodyInfo& info = body->info;
  for (int64_t i = 1; i <= info.layers; ++i) body->local.push_back(i % every != 0);
  ReadLayerTypes(config, &body->local);
  info.local_layers = std::count(body->local.begin(), body->local.end(), true);
  if (config.IsNull("sliding_window")) config.Fail("sliding_window", "must not be null");
  // The window holds the token itself, or counts both sides together.
  const int64_t window = config.Int("sliding_window", 4096, info.causal ? 1 : 0, kMaxSize);
  info.window = info.causal ? window - 1 : window / 2;
  if (!info.causal && info.local_layers < info.layers) info.kernels = SoftmaxKernels();
  info.softmax_scale = 1 / std::sqrt(config.Double("query_pre_attn_scalar", 256, 1e-3, 1e9));
}

absl::StatusOr<FamilyModel> Build(ConfigReader& config, const GemmaDefaults& defaults,
                                  const TransformerConfig& body, const TransformerNames& names,
                                  WeightReader& weights, const HeadLayout& heads) {
  CheckRotated(config, "head_dim", body.info.head_size(), *body.rope);
  InputRules rules{.vocabulary = body.words,
                   .max_tokens = ReadSize(config, "max_position_embeddings", defaults.max_tokens)};
  return BuildFamily(config, body, names, weights, std::move(rules), heads);
}

}  // namespace

absl::StatusOr<FamilyModel> BuildGemma1(ConfigReader& config, WeightReader& weights) {
  RefuseBothWays(config);
  TransformerConfig body = ReadGemma(config, kGemma1);
  // Old files say "gelu" and mean the approximation.
  if (config.String(kGemma1.activation_key, "") == "gelu")
    body.mlp.activation = Activation::kGeluTanh;
  body.rope = ReadRope(config, 10'000, {});
  return Build(config, kGemma1, body, kGemma1Names, weights, kGemmaHeads);
}

absl::StatusOr<FamilyModel> BuildGemma2(ConfigReader& config, WeightReader& weights) {
  RefuseBothWays(config);
  TransformerConfig body = ReadGemma(config, kGemma2);
  ReadGemmaLayers(config, /*every=*/2, &body);
  constexpr std::string_view kCap = "attn_logit_softcapping";
  if (!config.IsNull(kCap)) body.info.softcap = config.Double(kCap, 50, 1e-3, 1e9);
  body.rope = body.local_rope = ReadRope(config, 10'000, {});
  return Build(config, kGemma2, body, kGemma2Names, weights, kGemma2Heads);
}

absl::StatusOr<FamilyModel> BuildGemma3(ConfigReader& config, WeightReader& weights) {
  for (const std::string_view key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (config.Has(key)) config.Fail(key, "is not supported");
  }
  TransformerConfig body = ReadGemma(config, kGemma3);
  body.info.causal = !config.Bool("use_bidirectional_attention", false);
  if (config.Bool("is_causal", body.info.causal) != body.info.causal) {
    config.Fail("is_causal", "contradicts use_bidirectional_attention");
  }
  body.norm_heads = true;
  const std::string_view pattern =
      config.Has("_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
  ReadGemmaLayers(config, config.Int(pattern, 6, 1, kMaxLayers), &body);
  RefuseOtherRotations(config);
  body.rope = {.theta = ReadThetaOfKind(config, kGlobalLayer, "rope_theta", 1'000'000)};
  body.local_rope = {.theta = ReadThetaOfKind(config, kLocalLayer, "rope_local_base_freq", 10'000)};
  return Build(config, kGemma3, body, kGemma3Names, weights, kGemmaHeads);
}

}  // namespace castor::encoder
