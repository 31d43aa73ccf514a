// MPNet: the post-norm body with a bias on scores by how far apart two tokens are, shared by all
// layers; positions from 2, no token types.
#pragma once

#include "absl/status/statusor.h"
#include "engine/encoder/families/families.h"

namespace castor::encoder {

// Reads a config.json of model_type "mpnet" and takes the weights it implies. Missing keys have the
// defaults of Hugging Face's MPNetConfig. Heads are not read.
absl::StatusOr<FamilyModel> BuildMpnet(ConfigReader& config, WeightReader& weights);

// The bucket of a distance, key - query, of 32: sixteen a side; the first eight of a side are
// distances of their own, the others grow up to 128, and farther ones share the last.
int64_t MpnetBucket(int64_t distance);

}  // namespace castor::encoder
