// The body that BERT and its relatives share: layers of attention and an MLP, each added to its
// input and followed by a norm. Positions are learned and added to the word embeddings, or rotate
// queries and keys, or are a bias on scores, or terms of their own in disentangled attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/encoder/directory/weights.h"
#include "engine/encoder/layers/disentangled.h"
#include "engine/encoder/layers/feed_forward.h"
#include "engine/encoder/layers/qkv.h"
#include "engine/encoder/layers/rope.h"
#include "engine/encoder/network/body.h"
#include "engine/encoder/network/layers.h"

namespace castor::encoder {

struct PostNormConfig {
  BodyInfo info;
  int64_t words = 0;  // rows of the table: the vocabulary
  int64_t positions =
      0;              // rows of the table, those before the first position included; 0: no table
  int64_t types = 0;  // rows of the table; 0: no table
  FeedForwardConfig mlp;
  double epsilon = 0;                          // of every norm
  NormKind layer_norm = NormKind::kLayerNorm;  // of the layers; the embeddings' is a LayerNorm
  bool qkv_bias = true;
  bool attention_output_bias = true;
  std::optional<RopeConfig> rope = {};                  // queries and keys are rotated
  std::optional<DisentangledConfig> disentangled = {};  // attention is that, in DeBERTa's names

  // Added to the scores of every layer by key - query, from -reach to reach: float32 [heads,
  // 2 * reach + 1] on the weights' device; undefined: nothing is.
  at::Tensor bias = {};
  // Times the distance, subtracted from the scores of every layer: float32 [heads], the same.
  at::Tensor slopes = {};
};

// Where a family's checkpoints keep the weights. Names omit the ".weight" and ".bias" at their end.
struct PostNormNames {
  // A checkpoint is saved with or without its family's prefix: all names get the first of these
  // under which `words` is stored.
  std::span<const std::string_view> prefixes;

  std::string_view words;
  std::string_view positions = {};
  std::string_view types = {};  // empty: the family has no token types
  std::string_view norm;
  std::string_view projection = {};  // behind the norm, where embeddings are not as wide as rows

  std::string_view layers;  // a layer's names begin with this, a dot, its index and a dot
  QkvNames qkv;
  std::string_view attention_output;
  std::string_view attention_norm;
  // A second norm, of the first one's rows with the layer's input added once more; empty: none.
  std::string_view second_attention_norm = {};
  FeedForwardNames mlp;
  std::string_view output_norm;
};

// Takes the weights that `config` implies.
absl::StatusOr<std::unique_ptr<Body>> BuildPostNorm(const PostNormConfig& config,
                                                    const PostNormNames& names,
                                                    WeightReader& weights);

}  // namespace castor::encoder
