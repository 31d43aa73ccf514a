// GTE ("new"): the post-norm body with rotated queries and keys, or a table of positions, and a
// gated MLP without a bias before the gate.
//
// Reads a config.json of model_type "new" or "gte", in the keys of its own code or of transformers
// 5, and takes the weights it implies.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "engine/encoder/directory/config_keys.h"
#include "engine/encoder/directory/rope_keys.h"
#include "engine/encoder/families/families.h"
#include "engine/encoder/network/post_norm.h"

namespace castor::encoder {
namespace {

// Checkpoints of a head's class have a prefix, which transformers 5 names otherwise.
constexpr std::string_view kGtePrefixes[] = {"", "new.", "gte."};

constexpr PostNormNames kGteNames = {
    .prefixes = kGtePrefixes,
    .words = "embeddings.word_embeddings",
    .positions = "embeddings.position_embeddings",
    .types = "embeddings.token_type_embeddings",
    .norm = "embeddings.LayerNorm",
    .layers = "encoder.layer",
    .qkv = {.query = "attention.qkv_proj"},
    .attention_output = "attention.o_proj",
    .attention_norm = "attn_ln",
    .mlp = {.in = "mlp.up_gate_proj", .out = "mlp.down_proj", .gate_first = true},
    .output_norm = "mlp_ln",
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

// Rotations, or a table.
void ReadPositions(ConfigReader& config, double theta, PostNormConfig* body) {
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
  // Of transformers 5; the other's are those of its own code.
  const bool gte = config.String("model_type", "") == "gte";
  PostNormConfig body;
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
  body.layer_norm = ReadNorm(config);
  RefuseTrue(config, {"logn_attention_scale", "logn_attention_clip1"},
             "scores that grow with the length are not supported");
  RefuseTrue(config, {"is_decoder", "add_cross_attention"}, "only encoders are served");
  PostNormNames names = kGteNames;
  if (!config.Bool("pack_qkv", true)) {
    names.qkv = {
        .query = "attention.q_proj", .key = "attention.k_proj", .value = "attention.v_proj"};
  }
  if (!config.status().ok()) return config.status();
  absl::StatusOr<std::unique_ptr<Body>> built = BuildPostNorm(body, names, weights);
  if (!built.ok()) return built.status();
  return FamilyModel{*std::move(built), std::move(rules), gte ? &kGteHeads : &kNewHeads};
}

}  // namespace castor::encoder
