// Language models that embed texts, such as Qwen3-Embedding, gte-Qwen2, e5-mistral and
// llama-nemotron-embed: the pre-norm body with RMSNorms, rotated queries and keys, and a gated MLP.
// Attention is causal, unless the model was trained otherwise. Several heads may share keys and
// values.
//
// Reads the keys of transformers 4 or 5; for EuroBERT, which has the same layers, also those of its
// own code. A head's size may differ from hidden_size / num_attention_heads.
#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/transformer.h"
#include "engine/kernel_table.h"

namespace castor::encoder {
namespace {

// Checkpoints of a class with a head have the prefix.
constexpr std::string_view kDecoderPrefixes[] = {"", "model."};

constexpr TransformerNames kDecoderNames = {
    .prefixes = kDecoderPrefixes,
    .words = "embed_tokens",
    .final_norm = "norm",
    .layers = "layers",
    .attention_norm = "input_layernorm",
    .qkv = {.query = "self_attn.q_proj", .key = "self_attn.k_proj", .value = "self_attn.v_proj"},
    .attention_output = "self_attn.o_proj",
    .mlp_norm = "post_attention_layernorm",
    .mlp = {.in = "mlp.gate_proj", .gate = "mlp.up_proj", .out = "mlp.down_proj"},
};

constexpr TransformerNames NamesWithNormedHeads() {
  TransformerNames names = kDecoderNames;
  names.qkv.query_norm = "self_attn.q_norm";
  names.qkv.key_norm = "self_attn.k_norm";
  return names;
}
constexpr TransformerNames kQwen3Names = NamesWithNormedHeads();

// The defaults that differ between the families.
struct DecoderDefaults {
  int64_t words;
  int64_t mlp_width;
  int64_t key_value_heads;  // 0: as many as heads
  int64_t head_dim;         // 0: hidden_size / num_attention_heads
  int64_t max_tokens;
};
constexpr DecoderDefaults kLlama = {
    .words = 32'000, .mlp_width = 11'008, .key_value_heads = 0, .head_dim = 0, .max_tokens = 2048};
constexpr DecoderDefaults kMistral = {.words = 32'000,
                                      .mlp_width = 14'336,
                                      .key_value_heads = 8,
                                      .head_dim = 0,
                                      .max_tokens = 131'072};
constexpr DecoderDefaults kQwen2 = {.words = 151'936,
                                    .mlp_width = 22'016,
                                    .key_value_heads = 32,
                                    .head_dim = 0,
                                    .max_tokens = 32'768};
constexpr DecoderDefaults kQwen3 = {.words = 151'936,
                                    .mlp_width = 22'016,
                                    .key_value_heads = 32,
                                    .head_dim = 128,
                                    .max_tokens = 32'768};

bool IsBidirectionalLlama(ConfigReader& config) {
  return config.String("model_type", "") == "llama_bidirec";
}

// transformers reads is_causal; publishers' own code reads the other key, or has a type of its own.
bool ReadCausal(ConfigReader& config) {
  const bool always = IsBidirectionalLlama(config);
  const bool both_ways = config.Bool("use_bidirectional_attention", always);
  if (always && !both_ways) config.Fail("use_bidirectional_attention", "must be true");
  const bool causal = config.Bool("is_causal", !both_ways);
  if (causal && both_ways) config.Fail("use_bidirectional_attention", "contradicts is_causal");
  return causal;
}

TransformerConfig ReadDecoder(ConfigReader& config, const DecoderDefaults& defaults) {
  TransformerConfig body;
  body.info = {
      .hidden = ReadSize(config, "hidden_size", 4096),
      .layers = config.Int("num_hidden_layers", 32, 1, kMaxLayers),
      .heads = ReadSize(config, "num_attention_heads", 32),
      .causal = ReadCausal(config),
  };
  BodyInfo& info = body.info;
  if (config.Has("head_dim") || defaults.head_dim > 0) {
    info.head_dim = ReadSize(config, "head_dim", defaults.head_dim);
  } else {
    CheckHeads(config, "num_attention_heads", info);
  }
  body.info.key_value_heads =
      ReadKeyValueHeads(config, info.heads,
                        config.IsNull("num_key_value_heads") || defaults.key_value_heads == 0
                            ? info.heads
                            : defaults.key_value_heads);
  body.words = ReadSize(config, "vocab_size", defaults.words);
  body.mlp = {.width = ReadSize(config, "intermediate_size", defaults.mlp_width),
              .activation = ReadActivation(config, "hidden_act", "silu"),
              .gated = true,
              .in_bias = false,
              .out_bias = false};
  body.epsilon = ReadEpsilon(config, "rms_norm_eps", 1e-6);
  body.norm = NormKind::kRmsNorm;
  body.pre_norm = true;
  body.qkv_bias = body.attention_output_bias = false;
  body.rope = body.local_rope = ReadRope(config, 10'000, {.llama3 = true});
  CheckRotated(config, "head_dim", info.head_size(), *body.rope);
  return body;
}

// Reads local layers: those that "layer_types" lists, else those from `first` on. They see a window
// of "sliding_window" tokens, their own included; without a causal mask, as many on each side.
// Without `windows` there are no such layers.
void ReadWindows(ConfigReader& config, bool windows, int64_t first, TransformerConfig* body) {
  BodyInfo& info = body->info;
  windows = windows && !config.IsNull("sliding_window");
  for (int64_t i = 0; i < info.layers; ++i) body->local.push_back(windows && i >= first);
  ReadLayerTypes(config, &body->local);
  info.local_layers = std::count(body->local.begin(), body->local.end(), true);
  if (info.local_layers > 0) {
    if (!windows) config.Fail("layer_types", "has local layers, but sliding_window is missing");
    info.window = ReadSize(config, "sliding_window", 4096) - (info.causal ? 1 : 0);
  }
  const bool exact = info.causal || info.local_layers == info.layers;
  info.kernels = exact ? std::vector{KernelName::kVanilla} : SoftmaxKernels();
}

void ReadQwenWindows(ConfigReader& config, TransformerConfig* body) {
  const bool windows = config.Bool("use_sliding_window", false);
  ReadWindows(config, windows, config.Int("max_window_layers", 28, 0, kMaxSize), body);
}

absl::StatusOr<FamilyModel> Build(ConfigReader& config, const DecoderDefaults& defaults,
                                  const TransformerConfig& body, const TransformerNames& names,
                                  WeightReader& weights, const HeadLayout& heads = kDecoderHeads) {
  InputRules rules{.vocabulary = body.words,
                   .max_tokens = ReadSize(config, "max_position_embeddings", defaults.max_tokens)};
  return BuildFamily(config, body, names, weights, std::move(rules), heads);
}

}  // namespace

// An encoder with the layers of a decoder, without a causal mask.
absl::StatusOr<FamilyModel> BuildEuroBert(ConfigReader& config, WeightReader& weights) {
  TransformerConfig body;
  body.info = ReadBodyInfo(config, {.hidden = 768, .layers = 12, .heads = 12});
  const int64_t heads = body.info.heads;
  body.info.key_value_heads = ReadKeyValueHeads(config, heads, heads);
  CheckHeadDim(config, body.info);
  body.words = ReadSize(config, "vocab_size", 128'256);
  const bool mlp_bias = config.Bool("mlp_bias", false);
  body.mlp = {.width = ReadSize(config, "intermediate_size", 3072),
              .activation = ReadActivation(config, "hidden_act", "silu"),
              .gated = true,
              .in_bias = mlp_bias,
              .out_bias = mlp_bias};
  body.epsilon = ReadEpsilon(config, "rms_norm_eps", 1e-5);
  body.norm = NormKind::kRmsNorm;
  body.qkv_bias = body.attention_output_bias = config.Bool("attention_bias", false);
  body.pre_norm = true;
  body.rope = ReadRope(config, 10'000, {});
  CheckRotated(config, "num_attention_heads", body.info.hidden / heads, *body.rope);
  RefuseTrue(config, {"is_decoder", "add_cross_attention"}, "only encoders are served");
  InputRules rules{.vocabulary = body.words,
                   .max_tokens = ReadSize(config, "max_position_embeddings", 8192)};
  return BuildFamily(config, body, kDecoderNames, weights, std::move(rules), kEuroBertHeads);
}

// Also NVIDIA's "llama_bidirec", which looks both ways and classifies a pooled row.
absl::StatusOr<FamilyModel> BuildLlama(ConfigReader& config, WeightReader& weights) {
  TransformerConfig body = ReadDecoder(config, kLlama);
  ReadWindows(config, /*windows=*/false, /*first=*/0, &body);
  body.qkv_bias = body.attention_output_bias = config.Bool("attention_bias", false);
  body.mlp.in_bias = body.mlp.out_bias = config.Bool("mlp_bias", false);
  return Build(config, kLlama, body, kDecoderNames, weights,
               IsBidirectionalLlama(config) ? kBidirectionalLlamaHeads : kDecoderHeads);
}

absl::StatusOr<FamilyModel> BuildMistral(ConfigReader& config, WeightReader& weights) {
  TransformerConfig body = ReadDecoder(config, kMistral);
  ReadWindows(config, /*windows=*/true, /*first=*/0, &body);
  return Build(config, kMistral, body, kDecoderNames, weights);
}

absl::StatusOr<FamilyModel> BuildQwen2(ConfigReader& config, WeightReader& weights) {
  TransformerConfig body = ReadDecoder(config, kQwen2);
  ReadQwenWindows(config, &body);
  body.qkv_bias = true;
  return Build(config, kQwen2, body, kDecoderNames, weights);
}

absl::StatusOr<FamilyModel> BuildQwen3(ConfigReader& config, WeightReader& weights) {
  TransformerConfig body = ReadDecoder(config, kQwen3);
  ReadQwenWindows(config, &body);
  body.qkv_bias = body.attention_output_bias = config.Bool("attention_bias", false);
  body.norm_heads = true;
  return Build(config, kQwen3, body, kQwen3Names, weights);
}

// Both sizes have one model type and no other key in common that tells them apart.
absl::StatusOr<FamilyModel> BuildJinaV5(ConfigReader& config, WeightReader& weights) {
  for (const std::string_view prefix : kDecoderPrefixes) {
    if (weights.Has(std::string(prefix) + "layers.0.self_attn.q_norm.weight")) {
      return BuildQwen3(config, weights);
    }
  }
  return BuildEuroBert(config, weights);
}

}  // namespace castor::encoder
