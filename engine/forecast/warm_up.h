// The first run of every model and attention kernel, while the engine starts. So threads, code,
// memory pages and what libraries prepare per shape are ready for the first request, and what
// cannot run is never served.
//
// The runs also tell what a model costs.
//
// Engine thread only, before the first request.
#pragma once

#include <chrono>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/device/device.h"
#include "engine/forecast/encoder_costs.h"
#include "engine/jobs/models.h"

namespace castor {

// Runs each model on a few short inputs, however long that takes: as many as its costs need. Then,
// until `budget` is spent on it, on further shapes and poolings. Then, until it is spent once more,
// runs each kernel in each dtype that the device supports. An error names the model or kernel that
// failed.
absl::StatusOr<EncoderPrices> WarmUp(Device& device, const ModelSet& models, const Clock& clock,
                                     std::chrono::milliseconds budget);

}  // namespace castor
