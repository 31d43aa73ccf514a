// Keys of config.json that several families read in the same way. Errors go to the reader.
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

// These limits only keep sizes from overflowing; the weights' shapes decide what is valid.
inline constexpr int64_t kMaxSize = int64_t{1} << 24;
inline constexpr int64_t kMaxLayers = 1024;

// A size of at least 1; `fallback` if the key is missing.
int64_t ReadSize(ConfigReader& config, std::string_view key, int64_t fallback);

// An activation; `fallback` if the key is missing.
Activation ReadActivation(ConfigReader& config, std::string_view key,
                          std::string_view fallback = "gelu");

// Positive even in float32: a row of zeros, divided by the root of 0, would be NaN.
double ReadEpsilon(ConfigReader& config, std::string_view key, double fallback);

// An error at a key that is true; `why` says what is served instead.
void RefuseTrue(ConfigReader& config, std::initializer_list<std::string_view> keys,
                std::string_view why);

// transformers' names for kinds of layers.
inline constexpr std::string_view kGlobalLayer = "full_attention";
inline constexpr std::string_view kLocalLayer = "sliding_attention";

// Reads from "layer_types", if present, which layers are local. An error unless it names every
// layer.
void ReadLayerTypes(ConfigReader& config, std::vector<bool>* local);

// An error at `key`, the number of heads, unless it divides the hidden size.
void CheckHeads(ConfigReader& config, std::string_view key, const BodyInfo& info);

// A body's sizes, from the keys of most families; `fallback` for missing keys. Its kernels are all
// but CAST, which needs surrogate tokens that these models are not trained with.
struct BodySizes {
  int64_t hidden, layers, heads;
};
BodyInfo ReadBodyInfo(ConfigReader& config, const BodySizes& fallback);

// The number of heads of keys and values; an error unless it divides `heads`.
int64_t ReadKeyValueHeads(ConfigReader& config, int64_t heads, int64_t fallback);

// An error unless "head_dim", if present, equals hidden size / heads.
void CheckHeadDim(ConfigReader& config, const BodyInfo& info);

// The rotation of queries and keys. transformers 5 has an object "rope_parameters"; before it there
// were "rope_theta" and an object "rope_scaling".

// The scalings that a family's code supports. Other types and unknown parameters are errors.
struct RopeScalings {
  bool ntk = false;      // "ntk", with a "factor" and an optional "mixed_b"
  bool dynamic = false;  // "dynamic", with a "factor"
  bool llama3 = false;   // "llama3", with a "factor" and three more
};

// The base of rotations, and the most that a scaling may stretch them. The limits fit float32.
inline constexpr double kMaxRopeFactor = 1e6;
double ReadTheta(ConfigReader& config, std::string_view key, double fallback);

// `theta`: the base if the file gives none. The result's `trained` is 0.
RopeConfig ReadRope(ConfigReader& config, double theta, const RopeScalings& served);

// The base for layers of one kind, "full_attention" or "sliding_attention", if kinds have their
// own: in "rope_parameters.KIND", or at the key `before` of transformers 4.
double ReadThetaOfKind(ConfigReader& config, std::string_view kind, std::string_view before,
                       double fallback);

// Errors at other keys that would change the rotation of such layers.
void RefuseOtherRotations(ConfigReader& config);

// An error at `key`, the number of heads, unless heads of `head_dim` can be rotated so.
void CheckRotated(ConfigReader& config, std::string_view key, int64_t head_dim,
                  const RopeConfig& rope);

}  // namespace castor::encoder
