// What an engine says about itself.
#pragma once

#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/jobs/models.h"

namespace castor {

// The device, its kernels with the dtypes that they take at common dimensions, and the models.
EngineInfo DescribeEngine(const Device& device, const Models& models);

}  // namespace castor
