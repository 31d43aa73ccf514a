// The first run of every model and attention kernel, made while the engine starts: threads, code,
// pages of memory and what libraries prepare for a shape are there when the first request comes,
// and what cannot run is never served.
//
// Engine thread only, before the first request.
#pragma once

#include <chrono>

#include "absl/status/status.h"
#include "engine/base/clock.h"
#include "engine/device/device.h"
#include "engine/jobs/models.h"

namespace castor {

// Runs each model once on a short input, whatever that takes; then, until `budget` is spent, the
// models on further shapes and poolings, and each kernel in each dtype that the device has for it.
// An error names the model or kernel that failed.
absl::Status WarmUp(Device& device, const ModelSet& models, const Clock& clock,
                    std::chrono::milliseconds budget);

}  // namespace castor
