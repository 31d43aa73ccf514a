// Loads what an operator names into the form that the registry takes.
//
// Engine thread only.
#pragma once

#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/jobs/models.h"

namespace castor {

// Reads a file of CAST layers into host memory, or lets the device load a model directory. Takes
// seconds. Errors name the file. The result has no generation yet.
absl::StatusOr<LoadedModel> LoadModel(Device& device, const ModelSource& source);

}  // namespace castor
