#include "engine/encoder/directory/config_keys.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/kernel_table.h"

namespace castor::encoder {

int64_t ReadSize(ConfigReader& config, std::string_view key, int64_t fallback) {
  return config.Int(key, fallback, 1, kMaxSize);
}

Activation ReadActivation(ConfigReader& config, std::string_view key, std::string_view fallback) {
  const std::string name = config.String(key, fallback);
  if (const std::optional<Activation> known = ParseActivation(name)) return *known;
  config.Fail(key, "unknown activation \"" + name + "\"");
  return Activation::kGeluErf;
}

double ReadEpsilon(ConfigReader& config, std::string_view key, double fallback) {
  return config.Double(key, fallback, 1.2e-38, 1);
}

void RefuseTrue(ConfigReader& config, std::initializer_list<std::string_view> keys,
                std::string_view why) {
  for (const std::string_view key : keys) {
    if (config.Bool(key, false)) config.Fail(key, why);
  }
}

void ReadLayerTypes(ConfigReader& config, std::vector<bool>* local) {
  if (!config.Has("layer_types")) return;
  const std::vector<std::string> types = config.Strings("layer_types");
  if (types.size() != local->size()) {
    config.Fail("layer_types", "does not name num_hidden_layers layers");
    return;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != kGlobalLayer && types[i] != kLocalLayer) {
      config.Fail("layer_types", "\"" + types[i] + "\" is not known");
    }
    (*local)[i] = types[i] == kLocalLayer;
  }
}

void CheckHeads(ConfigReader& config, std::string_view key, const BodyInfo& info) {
  if (info.hidden % info.heads != 0) config.Fail(key, "does not divide the hidden size");
}

BodyInfo ReadBodyInfo(ConfigReader& config, const BodySizes& fallback) {
  BodyInfo info{
      .hidden = ReadSize(config, "hidden_size", fallback.hidden),
      .layers = config.Int("num_hidden_layers", fallback.layers, 1, kMaxLayers),
      .heads = ReadSize(config, "num_attention_heads", fallback.heads),
      .kernels = SoftmaxKernels(),
  };
  CheckHeads(config, "num_attention_heads", info);
  return info;
}

int64_t ReadKeyValueHeads(ConfigReader& config, int64_t heads, int64_t fallback) {
  const int64_t shared = ReadSize(config, "num_key_value_heads", fallback);
  if (heads % shared != 0) {
    config.Fail("num_key_value_heads", "does not divide num_attention_heads");
  }
  return shared;
}

void CheckHeadDim(ConfigReader& config, const BodyInfo& info) {
  const int64_t head_dim = info.hidden / info.heads;
  if (ReadSize(config, "head_dim", head_dim) != head_dim) {
    config.Fail("head_dim", "must be hidden_size / num_attention_heads");
  }
}

double ReadTheta(ConfigReader& config, std::string_view key, double fallback) {
  return config.Double(key, fallback, 1, 1e15);
}

namespace {

constexpr const char* kTrainedLength = "original_max_position_embeddings";

// The factor of a scaling.
double ReadFactor(ConfigReader& config, const std::string& object) {
  const std::string key = object + ".factor";
  if (!config.Has(key)) config.Fail(key, "is missing");
  return config.Double(key, 1, 1, kMaxRopeFactor);
}

RopeConfig::Llama3 ReadLlama3(ConfigReader& config, const std::string& object) {
  RopeConfig::Llama3 scaling{.factor = ReadFactor(config, object)};
  for (const auto& [name, value] :
       {std::pair{"low_freq_factor", &scaling.low}, std::pair{"high_freq_factor", &scaling.high},
        std::pair{kTrainedLength, &scaling.trained}}) {
    // transformers takes this length from outside the object first, then the model's own.
    const bool outside = name == kTrainedLength && config.Has(name);
    const std::string key = outside ? name : absl::StrCat(object, ".", name);
    const bool own = name == kTrainedLength && config.Has("max_position_embeddings");
    if (!config.Has(key) && !own) config.Fail(key, "is missing");
    const int64_t length = config.Int("max_position_embeddings", 1, 1, kMaxSize);
    *value = config.Double(key, static_cast<double>(length), 1e-3, kMaxSize);
  }
  if (scaling.high <= scaling.low) {
    config.Fail(object + ".high_freq_factor", "must be greater than low_freq_factor");
  }
  return scaling;
}

}  // namespace

RopeConfig ReadRope(ConfigReader& config, double theta, const RopeScalings& served) {
  const bool now = config.Has("rope_parameters");
  const std::string object = now ? "rope_parameters" : "rope_scaling";
  if (now && config.Has("rope_scaling")) {
    config.Fail("rope_scaling", "cannot be combined with rope_parameters");
  }
  RopeConfig rope;
  const std::string theta_key =
      config.Has(object + ".rope_theta") ? object + ".rope_theta" : "rope_theta";
  rope.theta = ReadTheta(config, theta_key, theta);
  if (!config.Has(object)) return rope;

  const std::string type =
      config.String(object + ".rope_type", config.String(object + ".type", now ? "default" : ""));
  const bool ntk = type == "ntk" && served.ntk, dynamic = type == "dynamic" && served.dynamic;
  const bool llama3 = type == "llama3" && served.llama3;
  if (type.empty()) {
    config.Fail(object, "names no rope_type");
  } else if (type != "default" && !ntk && !dynamic && !llama3) {
    config.Fail(object + ".rope_type", "\"" + type + "\" is not supported");
  }
  for (const std::string& key : config.Keys(object)) {
    const bool known =
        key == "rope_type" || key == "type" || key == "rope_theta" ||
        (key == "factor" && (ntk || dynamic || llama3)) || (key == "mixed_b" && ntk) ||
        (llama3 &&
         (key == "low_freq_factor" || key == "high_freq_factor" || key == kTrainedLength)) ||
        config.IsNull(object + "." + key);
    if (!known) config.Fail(object + "." + key, "is not supported");
  }
  if (ntk) {
    rope.ntk_factor = ReadFactor(config, object);
    if (config.Has(object + ".mixed_b"))
      rope.ntk_mixed = config.Double(object + ".mixed_b", 1, 0, 4);
  }
  if (dynamic) rope.dynamic_factor = ReadFactor(config, object);
  if (llama3) rope.llama3 = ReadLlama3(config, object);
  return rope;
}

double ReadThetaOfKind(ConfigReader& config, std::string_view kind, std::string_view before,
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
  return ReadTheta(config, key, fallback);
}

void RefuseOtherRotations(ConfigReader& config) {
  if (config.Has("rope_scaling")) {
    const std::string type =
        config.String("rope_scaling.rope_type", config.String("rope_scaling.type", "missing"));
    if (type != "default") {
      config.Fail("rope_scaling", "a rope_type \"" + type + "\" is not supported; \"default\" is");
    }
  }
  for (const std::string& key : config.Keys("rope_parameters")) {
    if (key != kGlobalLayer && key != kLocalLayer)
      config.Fail("rope_parameters." + key, "is not known");
  }
}

void CheckRotated(ConfigReader& config, std::string_view key, int64_t head_dim,
                  const RopeConfig& rope) {
  if (head_dim % 2 != 0) {
    config.Fail(key, "makes heads of an odd size, which cannot be rotated by halves");
  }
  if (rope.dynamic_factor > 0 && head_dim <= 2) {
    config.Fail(key, "makes heads too small for a dynamic rotation");
  }
}

}  // namespace castor::encoder
