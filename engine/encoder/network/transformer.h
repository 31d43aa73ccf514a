// The body of every family: embeddings, then layers of attention and an MLP, each added to its
// input. BERT's relatives normalise each sum (post-norm). ModernBERT, decoders and their relatives
// normalise the inputs of attention and MLP, and the last layer's rows (pre-norm).
//
// Positions are added to the word embeddings, or rotate queries and keys, or bias scores, or have
// terms of their own in disentangled attention. Layers see all tokens or a window; or attention is
// CAST.
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
#include "engine/encoder/layers/convolution.h"
#include "engine/encoder/layers/disentangled.h"
#include "engine/encoder/layers/feed_forward.h"
#include "engine/encoder/layers/qkv.h"
#include "engine/encoder/layers/rope.h"
#include "engine/encoder/network/body.h"
#include "engine/encoder/network/layers.h"

namespace castor::encoder {

struct TransformerConfig {
  BodyInfo info;                 // local_layers and window included, or cast
  std::vector<bool> local = {};  // [layers]: whether a layer is local; empty: none is
  bool pre_norm = false;
  int64_t words = 0;           // rows of the table: the vocabulary
  int64_t positions = 0;       // rows, including those before the first position; 0: no table
  bool sinusoidal = false;     // that table is one of sinusoids, which no checkpoint has
  int64_t types = 0;           // rows of the table; 0: no table
  double embedding_scale = 1;  // of the words' rows
  FeedForwardConfig mlp;
  std::vector<bool> mixed = {};  // [layers]: whether a layer has the MLP's experts; empty: none has
  double epsilon = 0;            // of every norm
  NormKind norm = NormKind::kLayerNorm;  // of the layers; embeddings have a LayerNorm
  bool norm_bias = true;                 // of LayerNorms
  bool qkv_bias = true;
  bool attention_output_bias = true;
  bool norm_heads = false;  // norms over queries and keys are per head; else over all heads
  std::optional<RopeConfig> rope = {};                  // queries and keys are rotated
  std::optional<RopeConfig> local_rope = {};            // of layers with a window
  std::optional<DisentangledConfig> disentangled = {};  // attention with DeBERTa's names
  std::optional<ConvolutionConfig> convolution = {};    // after the first layer, likewise

  // Added to the scores of every layer, by key - query from -reach to reach: float32
  // [heads, 2 * reach + 1] on the weights' device; undefined: no bias.
  at::Tensor bias = {};
  // Multiplied by the distance and subtracted from the scores of every layer: float32 [heads] on
  // the weights' device; undefined: no slopes.
  at::Tensor slopes = {};
};

// The names of weights in a family's checkpoints, without ".weight" and ".bias". An empty name: the
// family has no such part.
struct TransformerNames {
  // A checkpoint is saved with or without its family's prefix. All names get the first of these
  // under which `words` is stored.
  std::span<const std::string_view> prefixes;

  std::string_view words;
  std::string_view positions = {};
  std::string_view types = {};
  // Normalises the embeddings. With it, the first layer of a pre-norm body has no norm before its
  // attention.
  std::string_view norm = {};
  std::string_view projection = {};  // after the norm, if embeddings are narrower than rows
  std::string_view final_norm = {};  // pre-norm

  std::string_view layers;               // a layer's names begin with this + "." + its index + "."
  std::string_view attention_norm = {};  // pre-norm
  QkvNames qkv;
  std::string_view attention_output;
  // Post-norm: normalises the sum. Pre-norm: attention's result, before it is added.
  std::string_view attention_output_norm = {};
  // Normalises the first norm's result plus the layer's input.
  std::string_view second_attention_norm = {};
  std::string_view mlp_norm = {};  // pre-norm
  FeedForwardNames mlp;
  std::string_view mlp_output_norm = {};  // like attention_output_norm
  // CAST layers: the surrogate tokens' whole name, and the gate's without ".weight" and ".bias".
  std::string_view surrogates = {};
  std::string_view gate = {};
};

// Takes the weights that `config` implies.
absl::StatusOr<std::unique_ptr<Body>> BuildTransformer(const TransformerConfig& config,
                                                       const TransformerNames& names,
                                                       WeightReader& weights);

}  // namespace castor::encoder
