// BERT with rotated queries and keys: the post-norm body, often with a gated MLP.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/transformer.h"
#include "engine/kernel_table.h"

namespace castor::encoder {

// ---- GTE, with the keys of its own code ("new") or of transformers 5 ("gte"). It may have a table
// of positions. The gated matrix has no bias.

namespace {

// Checkpoints of a class with a head have a prefix, "new." or that of transformers 5.
constexpr std::string_view kGtePrefixes[] = {"", "new.", "gte."};

constexpr TransformerNames kGteNames = {
    .prefixes = kGtePrefixes,
    .words = "embeddings.word_embeddings",
    .positions = "embeddings.position_embeddings",
    .types = "embeddings.token_type_embeddings",
    .norm = "embeddings.LayerNorm",
    .layers = "encoder.layer",
    .qkv = {.query = "attention.qkv_proj"},
    .attention_output = "attention.o_proj",
    .attention_output_norm = "attn_ln",
    .mlp = {.in = "mlp.up_gate_proj", .out = "mlp.down_proj", .gate_first = true},
    .mlp_output_norm = "mlp_ln",
};

NormKind ReadNorm(ConfigReader& config) {
  const std::string kind = config.String("layer_norm_type", "layer_norm");
  if (kind == "rms_norm") return NormKind::kRmsNorm;
  if (kind != "layer_norm") {
    config.Fail("layer_norm_type",
                "\"" + kind + "\" is not supported; \"layer_norm\", \"rms_norm\" are");
  }
  return NormKind::kLayerNorm;
}

// Reads rotations or a table of positions.
void ReadPositions(ConfigReader& config, double theta, TransformerConfig* body) {
  const std::string type = config.String("position_embedding_type", "rope");
  if (type == "rope") {
    body->positions = 0;
    body->rope = ReadRope(config, theta, {.ntk = true});
    CheckRotated(config, "num_attention_heads", body->info.hidden / body->info.heads, *body->rope);
  } else if (type != "absolute") {
    config.Fail("position_embedding_type",
                "\"" + type + "\" is not supported; \"rope\", \"absolute\" are");
  }
}

}  // namespace

absl::StatusOr<FamilyModel> BuildGte(ConfigReader& config, WeightReader& weights) {
  // transformers 5 and the published code have different defaults.
  const bool gte = config.String("model_type", "") == "gte";
  TransformerConfig body;
  body.info = ReadBodyInfo(config, {.hidden = 768, .layers = 12, .heads = 12});
  body.words = ReadSize(config, "vocab_size", gte ? 250'048 : 30'528);
  body.positions = ReadSize(config, "max_position_embeddings", gte ? 8192 : 2048);
  body.types = config.Int("type_vocab_size", 1, 0, kMaxSize);
  InputRules rules{.vocabulary = body.words,
                   .types = std::max<int64_t>(1, body.types),
                   .max_tokens = body.positions};
  ReadPositions(config, gte ? 160'000 : 10'000, &body);
  body.mlp = {.width = ReadSize(config, "intermediate_size", 3072),
              .activation = ReadActivation(config, "hidden_act"),
              .gated = true,
              .in_bias = false};
  body.epsilon = ReadEpsilon(config, "layer_norm_eps", 1e-12);
  body.norm = ReadNorm(config);
  RefuseTrue(config, {"logn_attention_scale", "logn_attention_clip1"},
             "scores that grow with the length of a text are not supported");
  RefuseTrue(config, {"is_decoder", "add_cross_attention"}, "only encoders are served");
  TransformerNames names = kGteNames;
  if (!config.Bool("pack_qkv", true)) {
    names.qkv = {
        .query = "attention.q_proj", .key = "attention.k_proj", .value = "attention.v_proj"};
  }
  return BuildFamily(config, body, names, weights, std::move(rules), gte ? kGteHeads : kNewHeads);
}

// ---- jina-embeddings-v3: XLM-RoBERTa's layers, with the keys of its own code or of
// transformers 5.

constexpr std::string_view kJinaV3Prefixes[] = {"", "roberta."};

constexpr TransformerNames kJinaV3Names = {
    .prefixes = kJinaV3Prefixes,
    .words = "embeddings.word_embeddings",
    .types = "embeddings.token_type_embeddings",
    .norm = "emb_ln",
    .layers = "encoder.layers",
    .qkv = {.query = "mixer.Wqkv"},
    .attention_output = "mixer.out_proj",
    .attention_output_norm = "norm1",
    .mlp = {.in = "mlp.fc1", .out = "mlp.fc2"},
    .mlp_output_norm = "norm2",
};

absl::StatusOr<FamilyModel> BuildJinaV3(ConfigReader& config, WeightReader& weights) {
  TransformerConfig body;
  body.info = ReadBodyInfo(config, {.hidden = 1024, .layers = 24, .heads = 16});
  body.words = ReadSize(config, "vocab_size", 250'002);
  body.types = ReadSize(config, "type_vocab_size", 1);
  body.mlp = {.width = ReadSize(config, "intermediate_size", 4096),
              .activation = ReadActivation(config, "hidden_act")};
  body.epsilon = ReadEpsilon(config, "layer_norm_eps", 1e-5);
  double theta = 20'000;
  if (config.String("model_type", "") == "xlm-roberta") {
    if (config.String("position_embedding_type", "") != "rotary") {
      config.Fail("position_embedding_type", "must be \"rotary\" beside lora_adaptations");
    }
    theta = config.Double("rotary_emb_base", 10'000, 1, 1e12);
  }
  body.rope = ReadRope(config, theta, {});
  CheckRotated(config, "num_attention_heads", body.info.hidden / body.info.heads, *body.rope);
  RefuseTrue(config, {"is_decoder", "add_cross_attention"}, "only encoders are served");
  InputRules rules{.vocabulary = body.words,
                   .types = body.types,
                   .max_tokens = ReadSize(config, "max_position_embeddings", 8194)};
  return BuildFamily(config, body, kJinaV3Names, weights, std::move(rules), kJinaV3Heads);
}

// ---- Nomic's BERT, with the keys of its own code (GPT-2's and more) or of transformers 5. In its
// own code layers may have experts.
//
// If rotations stretch, a text's rotation depends on its own length. The published code takes the
// longest text of all batches so far, so that a text's rows depend on other texts.

namespace {

// Checkpoints of a class with a head have a prefix, "bert." or that of transformers 5.
constexpr std::string_view kNomicPrefixes[] = {"", "bert.", "nomic_bert."};

constexpr TransformerNames kNomicNames = {
    .prefixes = kNomicPrefixes,
    .words = "embeddings.word_embeddings",
    .positions = "embeddings.position_embeddings",
    .types = "embeddings.token_type_embeddings",
    .norm = "emb_ln",
    .layers = "encoder.layers",
    .qkv = {.query = "attn.Wqkv"},
    .attention_output = "attn.out_proj",
    .attention_output_norm = "norm1",
    .mlp = {.in = "mlp.fc12", .gate = "mlp.fc11", .out = "mlp.fc2"},
    .mlp_output_norm = "norm2",
};
constexpr FeedForwardNames kNomicPlainMlp = {.in = "mlp.fc1",
                                             .out = "mlp.fc2",
                                             .router = "mlp.router.layer",
                                             .experts_in = "mlp.experts.mlp.w1",
                                             .experts_out = "mlp.experts.mlp.w2",
                                             .experts_bias = "mlp.experts.bias"};

struct NomicKeys {
  TransformerConfig body;
  int64_t max_tokens = 0;
};

// Refuses options of the published code that the body does not compute.
void RefuseUnserved(ConfigReader& config) {
  if (!config.Has("moe_every_n_layers") && config.Int("num_experts", 0, 0, kMaxSize) > 0) {
    config.Fail("num_experts", "needs moe_every_n_layers");
  }
  RefuseTrue(config, {"expert_choice_router", "moe_normalize_expert_weights"},
             "only experts that tokens choose, weighted by the softmax, are served");
  if (config.Int("num_shared_experts", 0, 0, kMaxSize) > 0) {
    config.Fail("num_shared_experts", "experts that all tokens share are not supported");
  }
  RefuseTrue(config, {"causal", "is_decoder", "add_cross_attention"}, "only encoders are served");
  RefuseTrue(config, {"prenorm", "parallel_block", "use_rms_norm", "norm_mlp"},
             "only LayerNorms after attention and after the MLP are served");
  RefuseTrue(config, {"rotary_emb_interleaved", "rotary_head_dim"},
             "only rotations of a head's halves are served");
  RefuseTrue(config, {"scale_attn_by_inverse_layer_idx"}, "is not supported");
  if (!config.Bool("scale_attn_weights", true)) {
    config.Fail("scale_attn_weights",
                "only scores divided by the root of the head's size are served");
  }
  if (config.Has("rotary_emb_scale_base")) {
    config.Fail("rotary_emb_scale_base", "rotations that decay are not supported");
  }
}

FeedForwardConfig ReadNomicMlp(ConfigReader& config, int64_t hidden) {
  FeedForwardConfig mlp{.in_bias = config.Bool("mlp_fc1_bias", true),
                        .out_bias = config.Bool("mlp_fc2_bias", true)};
  const std::string name = config.String("activation_function", "gelu_new");
  mlp.gated = name == "swiglu" || name == "geglu";
  if (name == "swiglu") mlp.activation = Activation::kSilu;
  if (!mlp.gated && name != "gelu") {
    // The published code computes names of approximations exactly; other code does as they say.
    config.Fail("activation_function",
                "\"" + name + "\" is not supported; \"swiglu\", \"geglu\", \"gelu\" are");
  }
  mlp.width = ReadSize(config, "n_inner", mlp.gated ? 8 * hidden / 3 : 4 * hidden);
  // The width of a gated MLP is rounded up to a multiple of this.
  constexpr int64_t kMultiple = 256;
  if (mlp.gated) mlp.width = (mlp.width + kMultiple - 1) / kMultiple * kMultiple;
  return mlp;
}

// Reads which layers have experts: the second of each `moe_every_n_layers`.
void ReadExperts(ConfigReader& config, TransformerConfig* body) {
  const int64_t every = config.Int("moe_every_n_layers", 0, 0, kMaxLayers);
  for (int64_t i = 0; every > 1 && i < body->info.layers; ++i) {
    body->mixed.push_back(i % every == 1);
  }
  if (every <= 1) return;
  if (body->mlp.gated) config.Fail("activation_function", "experts with a gate are not supported");
  if (!config.Has("num_experts")) config.Fail("num_experts", "is missing");
  if (!config.Has("moe_top_k")) config.Fail("moe_top_k", "is missing");
  body->mlp.experts = config.Int("num_experts", 1, 1, 1024);
  body->mlp.of_row = config.Int("moe_top_k", 1, 1, body->mlp.experts);
}

// Reads rotations; without them there is a table of positions.
void ReadNomicPositions(ConfigReader& config, TransformerConfig* body) {
  const double fraction = config.Double("rotary_emb_fraction", 0, 0, 1);
  if (fraction == 0) return;
  if (fraction != 1) config.Fail("rotary_emb_fraction", "must be 0 or 1");
  body->positions = 0;
  RopeConfig rope{.theta = ReadTheta(config, "rotary_emb_base", 10'000)};
  rope.dynamic_factor = config.Double("rotary_scaling_factor", 0, 0, kMaxRopeFactor);
  if (rope.dynamic_factor != 0 && rope.dynamic_factor < 1) {
    config.Fail("rotary_scaling_factor", "must not be below 1");
  }
  rope.trained = ReadSize(config, "max_trained_positions", 2048);
  CheckRotated(config, "n_head", body->info.hidden / body->info.heads, rope);
  body->rope = rope;
}

// Reads the keys of the published code.
NomicKeys ReadOwnKeys(ConfigReader& config) {
  RefuseUnserved(config);
  NomicKeys keys;
  TransformerConfig& body = keys.body;
  body.info = {
      .hidden = ReadSize(config, "n_embd", 768),
      .layers = config.Int("n_layer", 12, 1, kMaxLayers),
      .heads = ReadSize(config, "n_head", 12),
      .kernels = SoftmaxKernels(),
  };
  CheckHeads(config, "n_head", body.info);
  if (ReadSize(config, "num_heads_kv", body.info.heads) != body.info.heads) {
    config.Fail("num_heads_kv", "must be n_head");
  }
  const int64_t multiple = ReadSize(config, "pad_vocab_size_multiple", 1);
  const int64_t vocabulary = ReadSize(config, "vocab_size", 50257);
  body.words = (vocabulary + multiple - 1) / multiple * multiple;
  body.positions = keys.max_tokens = ReadSize(config, "n_positions", 1024);
  body.types = config.Int("type_vocab_size", 2, 0, kMaxSize);
  body.epsilon = ReadEpsilon(config, "layer_norm_epsilon", 1e-5);
  body.mlp = ReadNomicMlp(config, body.info.hidden);
  ReadExperts(config, &body);
  body.qkv_bias = body.attention_output_bias = config.Bool("qkv_proj_bias", true);
  ReadNomicPositions(config, &body);
  return keys;
}

NomicKeys ReadTransformersKeys(ConfigReader& config) {
  RefuseUnserved(config);
  if (config.Int("moe_every_n_layers", 0, 0, kMaxLayers) > 0) {
    config.Fail("moe_every_n_layers",
                "experts need the keys of the published code, such as n_embd");
  }
  NomicKeys keys;
  TransformerConfig& body = keys.body;
  body.info = ReadBodyInfo(config, {.hidden = 768, .layers = 12, .heads = 12});
  CheckHeadDim(config, body.info);
  body.words = ReadSize(config, "vocab_size", 30528);
  body.types = ReadSize(config, "type_vocab_size", 2);
  body.epsilon = ReadEpsilon(config, "layer_norm_eps", 1e-12);
  body.mlp = {.width = ReadSize(config, "intermediate_size", 3072),
              .activation = ReadActivation(config, "hidden_act", "silu"),
              .gated = true,
              .in_bias = false,
              .out_bias = false};
  body.qkv_bias = body.attention_output_bias = false;
  RopeConfig rope = ReadRope(config, 1000, {.dynamic = true});
  rope.trained = keys.max_tokens = ReadSize(config, "max_position_embeddings", 2048);
  // Dynamic rotations serve texts that are longer than those of training.
  if (rope.dynamic_factor > 0) {
    keys.max_tokens = std::min(
        kMaxSize, static_cast<int64_t>(rope.dynamic_factor * static_cast<double>(rope.trained)));
  }
  CheckRotated(config, "num_attention_heads", body.info.hidden / body.info.heads, rope);
  body.rope = rope;
  return keys;
}

}  // namespace

absl::StatusOr<FamilyModel> BuildNomicBert(ConfigReader& config, WeightReader& weights) {
  const bool own = config.Has("n_embd");
  if (own && config.Has("hidden_size"))
    config.Fail("hidden_size", "cannot be combined with n_embd");
  const NomicKeys keys = own ? ReadOwnKeys(config) : ReadTransformersKeys(config);
  InputRules rules{.vocabulary = keys.body.words,
                   .types = std::max<int64_t>(1, keys.body.types),
                   .max_tokens = keys.max_tokens};
  TransformerNames names = kNomicNames;
  if (!keys.body.mlp.gated) names.mlp = kNomicPlainMlp;
  return BuildFamily(config, keys.body, names, weights, std::move(rules),
                     own ? kNomicOwnHeads : kNomicHeads);
}

}  // namespace castor::encoder
