// BERT with ALiBi (Press et al. 2021, arXiv 2108.12409), as jina-embeddings-v2 have it: no table of
// positions, but scores that fall with the distance, by a slope for each head; a gated MLP. The
// models for code have norms over queries and keys, and a second one after attention. Both call
// themselves "bert".
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/encoder/families/families.h"

namespace castor::encoder {

// Reads a config.json of model_type "bert" whose position_embedding_type is "alibi", and takes the
// weights it implies. Which of the two models it is, the weights' names tell. Heads are not read.
absl::StatusOr<FamilyModel> BuildJinaBert(ConfigReader& config, WeightReader& weights);

// ALiBi's slopes: of a power of two heads, powers of 2^(-8 / heads); otherwise those of the next
// lower power, then every second one of the next higher.
std::vector<float> AlibiSlopes(int64_t heads);

}  // namespace castor::encoder
