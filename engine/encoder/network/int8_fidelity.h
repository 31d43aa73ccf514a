// The error of 8 bits: the same texts are computed by a model in float32 and in 8 bits.
//
// Requires networks on the CPU, and the thread that computes there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/encoder/model.h"
#include "engine/engine.h"

namespace castor::encoder {

struct SampleVectors {
  std::vector<float> values;  // [vectors, width]
  int64_t width = 0;
};

// The pooled vectors of a dozen built-in texts, or token rows if the model does not pool.
absl::StatusOr<SampleVectors> EncodeSampleTexts(std::shared_ptr<const Model> model);

// Compares vectors of `hidden` elements each.
Int8Fidelity CompareVectors(const std::vector<float>& exact, const std::vector<float>& int8,
                            int64_t hidden);

}  // namespace castor::encoder
