// The body that ModernBERT and its like have: no table of positions, but rotated queries and keys;
// layers of attention and a gated MLP, each behind a LayerNorm and added to its input; a norm at
// the end. Some layers see all tokens, others a window.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/encoder/body.h"
#include "engine/encoder/layers.h"
#include "engine/encoder/weights.h"

namespace castor::encoder {

struct PreNormConfig {
  BodyInfo info;             // local_layers and window included
  std::vector<bool> local;   // [layers]: which those are
  int64_t words = 0;         // rows of the table: the vocabulary
  int64_t intermediate = 0;  // the MLP's width
  double epsilon = 0;        // of every LayerNorm
  Activation activation = Activation::kGeluErf;
  double global_theta = 0;  // of the rotation where layers see all
  double local_theta = 0;
  bool norm_bias = false;
  bool attention_bias = false;
  bool mlp_bias = false;
};

// Where a family's checkpoints keep the weights. Names omit the ".weight" and ".bias" at their end.
struct PreNormNames {
  // A checkpoint is saved with or without its family's prefix: all names get the first of these
  // under which `words` is stored.
  std::span<const std::string_view> prefixes;

  std::string_view words;
  std::string_view norm;
  std::string_view final_norm;

  std::string_view layers;          // a layer's names begin with this, a dot, its index and a dot
  std::string_view attention_norm;  // the first layer has none: the embeddings' is before it
  std::string_view qkv;             // queries, keys, values in one matrix
  std::string_view attention_output;
  std::string_view mlp_norm;
  std::string_view mlp_in;  // what is activated, then its gate
  std::string_view mlp_out;
};

// Takes the weights that `config` implies.
absl::StatusOr<std::unique_ptr<Body>> BuildPreNorm(const PreNormConfig& config,
                                                   const PreNormNames& names,
                                                   WeightReader& weights);

}  // namespace castor::encoder
