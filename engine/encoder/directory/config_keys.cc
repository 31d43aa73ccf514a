#include "engine/encoder/directory/config_keys.h"

#include <optional>
#include <string>

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
  const double epsilon = config.Double(key, fallback);
  if (epsilon < 0) config.Fail(key, "must not be negative");
  return epsilon;
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

}  // namespace castor::encoder
