// What 8 bits cost: the same texts through a model in float32 and in 8 bits.
//
// Both must have their networks on the CPU; on the thread that computes there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/encoder/model.h"
#include "engine/engine.h"

namespace castor::encoder {

struct OwnVectors {
  std::vector<float> values;  // [vectors, width]
  int64_t width = 0;
};

// The texts' pooled vectors, by means; of a model that does not pool, the rows of their tokens.
absl::StatusOr<OwnVectors> VectorsOfOwnTexts(std::shared_ptr<const Model> model);

// Of vectors of `hidden` elements each.
Int8Fidelity CompareVectors(const std::vector<float>& exact, const std::vector<float>& int8,
                            int64_t hidden);

}  // namespace castor::encoder
