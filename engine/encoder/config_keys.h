// What several families read from config.json in the same way. Errors go to the reader.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/encoder/body.h"
#include "engine/encoder/config_reader.h"
#include "engine/encoder/layers.h"

namespace castor::encoder {

// The limits only keep size arithmetic from overflowing; the weights' shapes decide what is valid.
inline constexpr int64_t kMaxSize = int64_t{1} << 24;
inline constexpr int64_t kMaxLayers = 1024;

// `fallback` where the key is missing; at least 1.
int64_t ReadSize(ConfigReader& config, std::string_view key, int64_t fallback);

// Exact GELU where the key is missing.
Activation ReadActivation(ConfigReader& config, std::string_view key);

// An error at `key`, which holds the number of heads, unless they divide the hidden size.
void CheckHeads(ConfigReader& config, std::string_view key, const BodyInfo& info);

}  // namespace castor::encoder
