// What several families read from config.json in the same way. Errors go to the reader.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "engine/encoder/directory/config_reader.h"
#include "engine/encoder/layers/rope.h"
#include "engine/encoder/network/body.h"
#include "engine/encoder/network/layers.h"

namespace castor::encoder {

// The limits only keep size arithmetic from overflowing; the weights' shapes decide what is valid.
inline constexpr int64_t kMaxSize = int64_t{1} << 24;
inline constexpr int64_t kMaxLayers = 1024;

// `fallback` where the key is missing; at least 1.
int64_t ReadSize(ConfigReader& config, std::string_view key, int64_t fallback);

// The activation `fallback` where the key is missing.
Activation ReadActivation(ConfigReader& config, std::string_view key,
                          std::string_view fallback = "gelu");

// Positive, in float32 too: a row of zeros over the root of 0 would be NaN.
double ReadEpsilon(ConfigReader& config, std::string_view key, double fallback);

// An error at each key that is true: `why` says what is served.
void RefuseTrue(ConfigReader& config, std::initializer_list<std::string_view> keys,
                std::string_view why);

// Kinds of layers, as transformers names them.
inline constexpr std::string_view kGlobalLayer = "full_attention";
inline constexpr std::string_view kLocalLayer = "sliding_attention";

// Which layers are local, if "layer_types" says it; an error unless it names as many.
void ReadLayerTypes(ConfigReader& config, std::vector<bool>* local);

// An error at `key`, which holds the number of heads, unless they divide the hidden size.
void CheckHeads(ConfigReader& config, std::string_view key, const BodyInfo& info);

// The sizes of a body, from the keys that most families have them in; `fallback` where one is
// missing. For each kernel but CAST, which needs surrogate tokens that these are not trained with.
struct BodySizes {
  int64_t hidden, layers, heads;
};
BodyInfo ReadBodyInfo(ConfigReader& config, const BodySizes& fallback);

// How many keys and values `heads` share; an error unless it divides them.
int64_t ReadKeyValueHeads(ConfigReader& config, int64_t heads, int64_t fallback);

// An error unless "head_dim", where it is given, is what those sizes make it.
void CheckHeadDim(ConfigReader& config, const BodyInfo& info);

// How config.json says that queries and keys are rotated: as transformers 5 does, in an object
// "rope_parameters", or as before it, in "rope_theta" and an object "rope_scaling".

// What a family's code can scale by. Other types are errors, and so are unknown parameters.
struct RopeScalings {
  bool ntk = false;      // "ntk", with a "factor" and perhaps a "mixed_b"
  bool dynamic = false;  // "dynamic", with a "factor"
};

// The base of rotations, and the most that a scaling may stretch them: what float32 holds.
inline constexpr double kMaxRopeFactor = 1e6;
double ReadTheta(ConfigReader& config, std::string_view key, double fallback);

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
