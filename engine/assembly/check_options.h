// The ranges of EngineOptions.
#pragma once

#include "absl/status/status.h"
#include "engine/engine.h"

namespace castor {

// INVALID_FIELD with the option's name when one is out of range, or when a model's name is empty or
// not unique.
absl::Status CheckOptions(const EngineOptions& options);

}  // namespace castor
