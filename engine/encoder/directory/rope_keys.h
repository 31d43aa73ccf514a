// How config.json says that queries and keys are rotated: as transformers 5 does, in an object
// "rope_parameters", or as before it, in "rope_theta" and an object "rope_scaling".
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/layers/rope.h"

namespace castor::encoder {

// What a family's code can scale by. Other types are errors, and so are unknown parameters.
struct RopeScalings {
  bool ntk = false;      // "ntk", with a "factor" and perhaps a "mixed_b"
  bool dynamic = false;  // "dynamic", with a "factor"
};

// `theta` is the base where the file gives none. Errors go to the reader. `trained` is left 0.
RopeConfig ReadRope(ConfigReader& config, double theta, const RopeScalings& served);

// The base of one kind of layer's rotation, "full_attention" or "sliding_attention", where kinds
// have their own: in "rope_parameters.KIND", or at the key `before` that it had in transformers 4.
double ReadThetaOfKind(ConfigReader& config, std::string_view kind, std::string_view before,
                       double fallback);

// Errors at what else says how such layers are rotated.
void RefuseOtherRotations(ConfigReader& config);

// An error at `key`, which holds the number of heads, unless their size can be rotated so.
void CheckRotated(ConfigReader& config, std::string_view key, int64_t head_dim,
                  const RopeConfig& rope);

}  // namespace castor::encoder
