// Loads what an operator names.
//
// Engine thread only.
#pragma once

#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/ledger/device_memory.h"
#include "engine/models/models.h"

namespace castor {

// Reads a file of CAST layers into host memory, or lets the device load a model directory, whose
// weights then take their part of `budget`. Takes seconds. Errors name the file, or the model if
// its weights do not fit. The result has no generation yet.
absl::StatusOr<LoadedModel> LoadModel(Device& device, const ModelSource& source,
                                      DeviceBudget& budget);

}  // namespace castor
