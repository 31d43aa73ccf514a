// The body that BERT and its closest relatives share: learned absolute positions, added to the word
// embeddings; layers of attention and a plain MLP, each followed by a LayerNorm; biases throughout.
// Scores may have a bias by position.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/encoder/body.h"
#include "engine/encoder/layers.h"
#include "engine/encoder/weights.h"

namespace castor::encoder {

struct PostNormConfig {
  BodyInfo info;
  int64_t words = 0;         // rows of the table: the vocabulary
  int64_t positions = 0;     // rows of the table, those before the first position included
  int64_t types = 0;         // rows of the table, if there is one
  int64_t intermediate = 0;  // the MLP's width
  double epsilon = 0;        // of every LayerNorm
  Activation activation = Activation::kGeluErf;
  // Added to the scores of every layer by key - query, from -reach to reach: float32 [heads,
  // 2 * reach + 1] on the weights' device; undefined: nothing is.
  at::Tensor bias = {};
};

// Where a family's checkpoints keep the weights. Names omit the ".weight" and ".bias" at their end.
struct PostNormNames {
  // A checkpoint is saved with or without its family's prefix: all names get the first of these
  // under which `words` is stored.
  std::span<const std::string_view> prefixes;

  std::string_view words;
  std::string_view positions;
  std::string_view types;  // empty: the family has no token types
  std::string_view norm;

  std::string_view layers;  // a layer's names begin with this, a dot, its index and a dot
  std::string_view query;
  std::string_view key;
  std::string_view value;
  std::string_view attention_output;
  std::string_view attention_norm;
  std::string_view intermediate;
  std::string_view output;
  std::string_view output_norm;
};

// Takes the weights that `config` implies.
absl::StatusOr<std::unique_ptr<Body>> BuildPostNorm(const PostNormConfig& config,
                                                    const PostNormNames& names,
                                                    WeightReader& weights);

}  // namespace castor::encoder
