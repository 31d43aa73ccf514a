// DeBERTa's disentangled attention (He et al. 2021, arXiv 2006.03654): the score of a query and a
// key, and besides that of the query with an embedding of the distance between them, and of the key
// with another. Distances share embeddings in buckets that grow with them.
//
// These terms are of rows and places at once, so no kernel of attention/ has them: LibTorch
// computes them, in float32, on whichever device has the weights, some heads of a sequence at a
// time.
//
// Immutable; used on the engine thread of the device that has the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/encoder/layers/qkv.h"
#include "engine/encoder/network/body.h"
#include "engine/kernels/count.h"

namespace castor::encoder {

struct DisentangledConfig {
  int64_t buckets = 0;      // of a side; 0: each distance has its own
  int64_t farthest = 0;     // from here on, a side has one bucket
  bool of_queries = false;  // queries have scores with embeddings of distances ("c2p")
  bool of_keys = false;     // and keys ("p2c")
  bool shared = false;      // embeddings are projected with the queries' and keys' own weights
  bool normed = false;      // embeddings go through a norm first
  double epsilon = 0;       // of that
  int64_t most_tokens = 0;  // of a sequence
  double scale = 0;         // of all scores

  int64_t span() const { return buckets > 0 ? buckets : farthest; }  // embeddings of a side
};

// By query - key + most_tokens - 1, the embedding of that distance: int64 [2 * most_tokens - 1].
at::Tensor BucketsOfDistances(const DisentangledConfig& config);

// What a layer makes of the embeddings of distances.
struct RelativeRows {
  at::Tensor keys;     // float32 [heads, 2 * span, head_dim]: what queries meet; or undefined
  at::Tensor queries;  // the same, scaled: what keys meet
};

// Of all layers.
struct Disentangled {
  DisentangledConfig config;
  at::Tensor buckets;  // as above, on the weights' device
  std::vector<RelativeRows> layers;

  // Attention of every sequence of `x`, [tokens, hidden], over itself: [tokens, heads * head_dim].
  // Checks the control, and ends with its status.
  absl::StatusOr<at::Tensor> operator()(const Qkv& qkv, const RelativeRows& layer,
                                        const at::Tensor& x, const BodyInputs& in) const;

  // What it takes beside queries, keys, values and the result, however many tokens there are.
  kernels::Count batch_bytes(int64_t head_dim) const;
};

// Takes the embeddings of a checkpoint, and of each layer, whose names begin with
// layers + "." + its index, what projects them where the layer's own weights, `qkv`, do not. Errors
// go to the reader.
Disentangled TakeDisentangled(WeightReader& weights, const DisentangledConfig& config,
                              const std::string& layers, const std::vector<const Qkv*>& qkv);

}  // namespace castor::encoder
