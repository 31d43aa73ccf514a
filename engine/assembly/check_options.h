// The ranges of EngineOptions.
#pragma once

#include "absl/status/status.h"
#include "engine/engine.h"

namespace castor {

// INVALID_FIELD with the option's name when one is out of range, or two models share a name.
absl::Status CheckOptions(const EngineOptions& options);

}  // namespace castor
