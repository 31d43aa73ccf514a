// sentence-transformers' StaticEmbedding, also as model2vec stores it: a table from token ids to
// rows, without a transformer. It has no config.json.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <string>

#include "absl/status/statusor.h"
#include "engine/encoder/families/families.h"
#include "engine/hf/safetensors.h"

namespace castor::encoder {

struct StaticEmbedding {
  FamilyModel model;
  int64_t elements = 0;  // of the table
};

// Takes "embedding.weight"; or model2vec's "embeddings", whose row for a token is at the token's
// "mapping" and is multiplied by its "weights", where these are stored. `folder` is for messages.
absl::StatusOr<StaticEmbedding> BuildStaticEmbedding(const hf::Safetensors& files,
                                                     const std::string& folder,
                                                     at::ScalarType dtype, at::Device device);

// Takes a SparseStaticEmbedding's "weight" of each token, as rows of one element in float32.
absl::StatusOr<StaticEmbedding> BuildTokenWeights(const hf::Safetensors& files,
                                                  const std::string& folder, at::Device device);

}  // namespace castor::encoder
