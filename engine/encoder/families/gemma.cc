// Gemma 3 without a causal mask, such as EmbeddingGemma: the pre-norm body with further norms after
// attention and after the MLP, norms over each query and key, rotations, a gated MLP, and local
// layers between those that see all tokens. Several heads may share keys and values. Reads the keys
// of transformers 4 or 5.
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

constexpr TransformerNames kGemmaNames = {
    .prefixes = kGemmaPrefixes,
    .words = "embed_tokens",
    .final_norm = "norm",
    .layers = "layers",
    .attention_norm = "input_layernorm",
    .qkv = {.query = "self_attn.q_proj",
            .key = "self_attn.k_proj",
            .value = "self_attn.v_proj",
            .query_norm = "self_attn.q_norm",
            .key_norm = "self_attn.k_norm"},
    .attention_output = "self_attn.o_proj",
    .attention_output_norm = "post_attention_layernorm",
    .mlp_norm = "pre_feedforward_layernorm",
    .mlp = {.in = "mlp.gate_proj", .gate = "mlp.up_proj", .out = "mlp.down_proj"},
    .mlp_output_norm = "post_feedforward_layernorm",
};

void ReadGemmaLayers(ConfigReader& config, TransformerConfig* body) {
  const std::string_view key =
      config.Has("_sliding_window_pattern") ? "_sliding_window_pattern" : "sliding_window_pattern";
  const int64_t every = config.Int(key, 6, 1, kMaxLayers);
  for (int64_t i = 1; i <= body->info.layers; ++i) body->local.push_back(i % every != 0);
  ReadLayerTypes(config, &body->local);
  body->info.local_layers = std::count(body->local.begin(), body->local.end(), true);
  // The window counts both sides together.
  if (config.IsNull("sliding_window")) config.Fail("sliding_window", "must not be null");
  body->info.window = config.Int("sliding_window", 4096, 0, kMaxSize) / 2;
  body->info.kernels = {KernelName::kVanilla};
  if (body->info.local_layers < body->info.layers) body->info.kernels = SoftmaxKernels();
}

void ReadGemmaHeads(ConfigReader& config, TransformerConfig* body) {
  CheckHeads(config, "num_attention_heads", body->info);
  body->info.key_value_heads = ReadKeyValueHeads(config, body->info.heads, 4);
  if (ReadSize(config, "head_dim", 256) != body->info.hidden / body->info.heads) {
    config.Fail("head_dim", "must be hidden_size / num_attention_heads");
  }
  body->info.softmax_scale = 1 / std::sqrt(config.Double("query_pre_attn_scalar", 256, 1e-3, 1e9));
}

}  // namespace

absl::StatusOr<FamilyModel> BuildGemma(ConfigReader& config, WeightReader& weights) {
  if (!config.Bool("use_bidirectional_attention", false)) {
    config.Fail("use_bidirectional_attention", "must be true: only encoders are served");
  }
  for (const std::string_view key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (config.Has(key)) config.Fail(key, "is not supported");
  }
  TransformerConfig body;
  body.info = {
      .hidden = ReadSize(config, "hidden_size", 2304),
      .layers = config.Int("num_hidden_layers", 26, 1, kMaxLayers),
      .heads = ReadSize(config, "num_attention_heads", 8),
  };
  ReadGemmaHeads(config, &body);
  ReadGemmaLayers(config, &body);
  RefuseOtherRotations(config);
  body.rope = {.theta = ReadThetaOfKind(config, kGlobalLayer, "rope_theta", 1'000'000)};
  body.local_rope = {.theta = ReadThetaOfKind(config, kLocalLayer, "rope_local_base_freq", 10'000)};
  CheckRotated(config, "num_attention_heads", body.info.hidden / body.info.heads, *body.rope);
  body.words = ReadSize(config, "vocab_size", 262'208);
  body.embedding_scale = std::sqrt(static_cast<double>(body.info.hidden));
  body.mlp = {.width = ReadSize(config, "intermediate_size", 9216),
              .activation = ReadActivation(config, "hidden_activation", "gelu_pytorch_tanh"),
              .gated = true,
              .in_bias = false,
              .out_bias = false};
  body.epsilon = ReadEpsilon(config, "rms_norm_eps", 1e-6);
  body.pre_norm = body.norm_heads = true;
  body.norm = NormKind::kRmsNormLessOne;
  body.qkv_bias = body.attention_output_bias = config.Bool("attention_bias", false);
  InputRules rules{.vocabulary = body.words,
                   .max_tokens = ReadSize(config, "max_position_embeddings", 131'072)};
  return BuildFamily(config, body, kGemmaNames, weights, std::move(rules), kDecoderHeads);
}

}  // namespace castor::encoder
