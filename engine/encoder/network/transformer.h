// The body of every family: embeddings, layers of attention and an MLP, each added to its input.
// BERT's relatives normalise each sum (post-norm); ModernBERT, decoders and their like normalise
// what attention and the MLP get, and the last layer's rows (pre-norm).
//
// Positions are learned and added to the word embeddings, or rotate queries and keys, or are a bias
// on scores, or terms of their own in disentangled attention. Some layers may see all tokens, and
// others a window; or attention is CAST.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/encoder/directory/weights.h"
#include "engine/encoder/layers/disentangled.h"
#include "engine/encoder/layers/feed_forward.h"
#include "engine/encoder/layers/qkv.h"
#include "engine/encoder/layers/rope.h"
#include "engine/encoder/network/body.h"
#include "engine/encoder/network/layers.h"

namespace castor::encoder {

struct TransformerConfig {
  BodyInfo info;                 // local_layers and window included, or cast
  std::vector<bool> local = {};  // [layers]: which those are; empty: none
  bool pre_norm = false;
  int64_t words = 0;           // rows of the table: the vocabulary
  int64_t positions = 0;       // rows, those before the first position included; 0: no table
  bool sinusoidal = false;     // that table is one of sinusoids, which no checkpoint has
  int64_t types = 0;           // rows of the table; 0: no table
  double embedding_scale = 1;  // of the words' rows
  FeedForwardConfig mlp;
  double epsilon = 0;                    // of every norm
  NormKind norm = NormKind::kLayerNorm;  // of the layers; the embeddings' is a LayerNorm
  bool norm_bias = true;                 // of LayerNorms
  bool qkv_bias = true;
  bool attention_output_bias = true;
  bool norm_heads = false;  // norms over queries and keys are of each head; else of all together
  std::optional<RopeConfig> rope = {};                  // queries and keys are rotated
  std::optional<RopeConfig> local_rope = {};            // of layers with a window
  std::optional<DisentangledConfig> disentangled = {};  // attention is that, in DeBERTa's names

  // Added to the scores of every layer by key - query, from -reach to reach: float32 [heads,
  // 2 * reach + 1] on the weights' device; undefined: nothing is.
  at::Tensor bias = {};
  // Times the distance, subtracted from the scores of every layer: float32 [heads], the same.
  at::Tensor slopes = {};
};

// Where a family's checkpoints keep the weights. Names omit the ".weight" and ".bias" at their end.
// Those that may be empty stand for what the family has not.
struct TransformerNames {
  // A checkpoint is saved with or without its family's prefix: all names get the first of these
  // under which `words` is stored.
  std::span<const std::string_view> prefixes;

  std::string_view words;
  std::string_view positions = {};
  std::string_view types = {};
  // Of the embeddings. With it, the first layer of a pre-norm body has none before its attention.
  std::string_view norm = {};
  std::string_view projection = {};  // behind the norm, where embeddings are not as wide as rows
  std::string_view final_norm = {};  // pre-norm

  std::string_view layers;  // a layer's names begin with this, a dot, its index and a dot
  std::string_view attention_norm = {};  // pre-norm
  QkvNames qkv;
  std::string_view attention_output;
  // Post-norm: of the sum. Pre-norm: of what attention returns, before it is added.
  std::string_view attention_output_norm = {};
  // Of the first one's rows with the layer's input added once more.
  std::string_view second_attention_norm = {};
  std::string_view mlp_norm = {};  // pre-norm
  FeedForwardNames mlp;
  std::string_view mlp_output_norm = {};  // like attention_output_norm
  // Of CAST layers (surrogates.h).
  std::string_view surrogates = {};
  std::string_view gate = {};
};

// Takes the weights that `config` implies.
absl::StatusOr<std::unique_ptr<Body>> BuildTransformer(const TransformerConfig& config,
                                                       const TransformerNames& names,
                                                       WeightReader& weights);

}  // namespace castor::encoder
