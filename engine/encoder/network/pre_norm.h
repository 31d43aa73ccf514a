// The body that ModernBERT and its like have: rotated queries and keys, or positions that are added
// to the word embeddings; layers of attention and an MLP, each behind a norm and added to its
// input; a norm at the end. Some layers see all tokens, others a window; or attention is CAST.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/encoder/directory/weights.h"
#include "engine/encoder/layers/feed_forward.h"
#include "engine/encoder/layers/qkv.h"
#include "engine/encoder/layers/rope.h"
#include "engine/encoder/network/body.h"
#include "engine/encoder/network/layers.h"

namespace castor::encoder {

struct PreNormConfig {
  BodyInfo info;            // local_layers and window included, or cast
  std::vector<bool> local;  // [layers]: which those are
  int64_t words = 0;        // rows of the table: the vocabulary
  FeedForwardConfig mlp;
  double epsilon = 0;  // of every norm
  NormKind norm = NormKind::kLayerNorm;
  bool norm_bias = false;
  double embedding_scale = 1;  // of the table's rows
  bool qkv_bias = false;
  bool attention_output_bias = false;

  // Where queries and keys are not rotated: rows of a learned table, or of one of sinusoids
  // (layers/rope.h), which is in no checkpoint. 0: no table.
  bool rotated = true;
  int64_t positions = 0;
  bool sinusoidal = false;
  RopeConfig global_rope = {};  // where layers see all
  RopeConfig local_rope = {};
};

// Where a family's checkpoints keep the weights. Names omit the ".weight" and ".bias" at their end.
struct PreNormNames {
  // A checkpoint is saved with or without its family's prefix: all names get the first of these
  // under which `words` is stored.
  std::span<const std::string_view> prefixes;

  std::string_view words;
  std::string_view positions = {};
  // Of the embeddings; then the first layer has no norm before its attention. Empty: none.
  std::string_view norm = {};
  std::string_view final_norm;

  std::string_view layers;  // a layer's names begin with this, a dot, its index and a dot
  std::string_view attention_norm;
  QkvNames qkv;
  std::string_view attention_output;
  std::string_view mlp_norm;
  FeedForwardNames mlp;
  // Norms of what attention and the MLP return, before it is added. Empty: none.
  std::string_view attention_output_norm = {};
  std::string_view mlp_output_norm = {};
  // Of CAST layers (surrogates.h).
  std::string_view surrogates = {};
  std::string_view gate = {};
};

// Takes the weights that `config` implies.
absl::StatusOr<std::unique_ptr<Body>> BuildPreNorm(const PreNormConfig& config,
                                                   const PreNormNames& names,
                                                   WeightReader& weights);

}  // namespace castor::encoder
