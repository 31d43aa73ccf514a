// DeBERTa's disentangled attention (He et al. 2021, arXiv 2006.03654). A score is the product of
// query and key, plus that of the query and an embedding of their distance, plus that of the key
// and another such embedding. Distances share embeddings in buckets that widen with the distance.
//
// These terms depend on contents and positions at once, so no kernel of attention/ has them.
// LibTorch computes them in float32 on the weights' device, some heads of a sequence at a time.
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
  int64_t buckets = 0;      // of a side; 0: one for each distance
  int64_t farthest = 0;     // from this distance on, a side has one bucket
  bool of_queries = false;  // scores of queries with embeddings of distances ("c2p")
  bool of_keys = false;     // scores of keys with such embeddings ("p2c")
  bool shared = false;      // embeddings are projected with the queries' and keys' own weights
  bool normed = false;      // embeddings go through a norm first
  double epsilon = 0;       // of that norm
  int64_t most_tokens = 0;  // of a sequence
  double scale = 0;         // of all scores

  int64_t span() const { return buckets > 0 ? buckets : farthest; }  // embeddings of a side
};

// The index of the embedding for each distance, at query - key + most_tokens - 1: int64
// [2 * most_tokens - 1].
at::Tensor BucketsOfDistances(const DisentangledConfig& config);

// The embeddings of distances, projected by a layer.
struct RelativeRows {
  at::Tensor keys;     // float32 [heads, 2 * span, head_dim], for queries; or undefined
  at::Tensor queries;  // the same, scaled, for keys
};

// Disentangled attention of all layers.
struct Disentangled {
  DisentangledConfig config;
  at::Tensor buckets;  // BucketsOfDistances, on the weights' device
  std::vector<RelativeRows> layers;

  // Attention of every sequence of `x`, [tokens, hidden], over itself: [tokens, heads * head_dim].
  // Checks the control, and ends with its status.
  absl::StatusOr<at::Tensor> operator()(const Qkv& qkv, const RelativeRows& layer,
                                        const at::Tensor& x, const BodyInputs& in) const;

  // The bytes that it takes beyond queries, keys, values and the result, for any number of tokens.
  kernels::Count batch_bytes(int64_t head_dim) const;
};

// Takes the embeddings of distances, and unless the layers' own weights `qkv` project them, each
// layer's projections, whose names begin with layers + "." + its index. Errors go to the reader.
Disentangled TakeDisentangled(WeightReader& weights, const DisentangledConfig& config,
                              const std::string& layers, const std::vector<const Qkv*>& qkv);

}  // namespace castor::encoder
