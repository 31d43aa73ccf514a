#include "engine/encoder/modernbert.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/encoder/config_keys.h"
#include "engine/encoder/pre_norm.h"
#include "engine/kernel_table.h"

namespace castor::encoder {
namespace {

// Checkpoints of a head's class have the prefix.
constexpr std::string_view kModernBertPrefixes[] = {"", "model."};

constexpr PreNormNames kModernBertNames = {
    .prefixes = kModernBertPrefixes,
    .words = "embeddings.tok_embeddings",
    .norm = "embeddings.norm",
    .final_norm = "final_norm",
    .layers = "layers",
    .attention_norm = "attn_norm",
    .qkv = "attn.Wqkv",
    .attention_output = "attn.Wo",
    .mlp_norm = "mlp_norm",
    .mlp_in = "mlp.Wi",
    .mlp_out = "mlp.Wo",
};

constexpr std::string_view kGlobal = "full_attention";
constexpr std::string_view kLocal = "sliding_attention";

// Which layers are local, as transformers 5 lists them, or 4 counts them.
std::vector<bool> ReadLocalLayers(ConfigReader& config, int64_t layers) {
  std::vector<bool> local;
  const int64_t every = config.Int("global_attn_every_n_layers", 3, 1, kMaxLayers);
  for (int64_t i = 0; i < layers; ++i) local.push_back(i % every != 0);
  if (!config.Has("layer_types")) return local;
  const std::vector<std::string> types = config.Strings("layer_types");
  if (static_cast<int64_t>(types.size()) != layers) {
    config.Fail("layer_types", "does not name num_hidden_layers layers");
    return local;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != kGlobal && types[i] != kLocal) {
      config.Fail("layer_types", "\"" + types[i] + "\" is not known");
    }
    local[i] = types[i] == kLocal;
  }
  return local;
}

// The base of one kind of layer's rotation: `before` is the key that it had in transformers 4.
double ReadTheta(ConfigReader& config, std::string_view kind, std::string_view before,
                 double fallback) {
  const std::string parameters = "rope_parameters." + std::string(kind);
  for (const std::string& key : config.Keys(parameters)) {
    if (key != "rope_type" && key != "rope_theta") {
      config.Fail(parameters + "." + key, "is not supported");
    }
  }
  const std::string type = config.String(parameters + ".rope_type", "default");
  if (type != "default") {
    config.Fail(parameters + ".rope_type", "\"" + type + "\" is not supported; \"default\" is");
  }
  const std::string key =
      config.Has(parameters + ".rope_theta") ? parameters + ".rope_theta" : std::string(before);
  const double theta = config.Double(key, fallback);
  if (theta <= 0) config.Fail(key, "must be positive");
  return theta;
}

void ReadRotations(ConfigReader& config, PreNormConfig* body) {
  if (config.Has("rope_scaling")) {
    const std::string type =
        config.String("rope_scaling.rope_type", config.String("rope_scaling.type", "missing"));
    if (type != "default") {
      config.Fail("rope_scaling", "a rope_type \"" + type + "\" is not supported; \"default\" is");
    }
  }
  for (const std::string& key : config.Keys("rope_parameters")) {
    if (key != kGlobal && key != kLocal) config.Fail("rope_parameters." + key, "is not known");
  }
  body->global_theta = ReadTheta(config, kGlobal, "global_rope_theta", 160'000);
  // Transformers 4 takes null for the other layers' theta.
  body->local_theta = ReadTheta(config, kLocal, "local_rope_theta",
                                config.IsNull("local_rope_theta") ? body->global_theta : 10'000);
}

// The number of tokens on each side.
int64_t ReadWindow(ConfigReader& config) {
  const int64_t window = config.Int("local_attention", 128, 0, kMaxSize) / 2;
  if (config.Int("sliding_window", window, 0, kMaxSize) != window) {
    config.Fail("sliding_window", "contradicts local_attention, which is twice that");
  }
  return window;
}

}  // namespace

absl::StatusOr<FamilyModel> BuildModernBert(ConfigReader& config, WeightReader& weights) {
  PreNormConfig body;
  body.info = {
      .hidden = ReadSize(config, "hidden_size", 768),
      .layers = config.Int("num_hidden_layers", 22, 1, kMaxLayers),
      .heads = ReadSize(config, "num_attention_heads", 12),
      .window = ReadWindow(config),
  };
  CheckHeads(config, "num_attention_heads", body.info);
  if (body.info.hidden / body.info.heads % 2 != 0) {
    config.Fail("num_attention_heads",
                "gives heads of an odd size, whose halves cannot be rotated");
  }
  body.local = ReadLocalLayers(config, body.info.layers);
  body.info.local_layers = std::count(body.local.begin(), body.local.end(), true);
  body.info.kernels = {KernelName::kVanilla};
  if (body.info.local_layers < body.info.layers) body.info.kernels = SoftmaxKernels();
  ReadRotations(config, &body);
  body.words = ReadSize(config, "vocab_size", 50368);
  body.intermediate = ReadSize(config, "intermediate_size", 1152);
  body.epsilon = config.Double("norm_eps", 1e-5);
  if (body.epsilon < 0) config.Fail("norm_eps", "must not be negative");
  body.activation = ReadActivation(config, "hidden_activation");
  body.norm_bias = config.Bool("norm_bias", false);
  body.attention_bias = config.Bool("attention_bias", false);
  body.mlp_bias = config.Bool("mlp_bias", false);
  InputRules rules{.vocabulary = body.words,
                   .max_tokens = ReadSize(config, "max_position_embeddings", 8192)};
  if (!config.status().ok()) return config.status();
  absl::StatusOr<std::unique_ptr<Body>> built = BuildPreNorm(body, kModernBertNames, weights);
  if (!built.ok()) return built.status();
  return FamilyModel{*std::move(built), std::move(rules), &kModernBertHeads};
}

}  // namespace castor::encoder
