// What an engine says about itself.
#pragma once

#include <vector>

#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/models/models.h"

namespace castor {

// The device, and its kernels with the dtypes that they support at common dimensions.
EngineInfo DescribeEngine(const Device& device);

// The models, sorted by name.
std::vector<ModelInfo> DescribeModels(const ModelSet& models);

}  // namespace castor
