// What an engine says about itself.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/models/models.h"

namespace castor {

// The device, and its kernels with the dtypes that they support at common dimensions.
EngineInfo DescribeEngine(const Device& device);

// The models, sorted by name.
std::vector<ModelInfo> DescribeModels(const ModelSet& models);

// The ranges of EngineOptions.

// INVALID_FIELD with the option's name when one is out of range, or when a model's name is empty or
// not unique.
absl::Status CheckOptions(const EngineOptions& options);

}  // namespace castor
