#include "engine/encoder/config_keys.h"

#include <optional>
#include <string>

namespace castor::encoder {

int64_t ReadSize(ConfigReader& config, std::string_view key, int64_t fallback) {
  return config.Int(key, fallback, 1, kMaxSize);
}

Activation ReadActivation(ConfigReader& config, std::string_view key) {
  const std::string name = config.String(key, "gelu");
  if (const std::optional<Activation> known = ParseActivation(name)) return *known;
  config.Fail(key, "unknown activation \"" + name + "\"");
  return Activation::kGeluErf;
}

void CheckHeads(ConfigReader& config, std::string_view key, const BodyInfo& info) {
  if (info.hidden % info.heads != 0) config.Fail(key, "does not divide the hidden size");
}

}  // namespace castor::encoder
