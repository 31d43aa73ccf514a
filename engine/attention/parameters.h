// The ranges of the kernels' parameters, as proto/castor/v1/kernel.proto states them, and the
// automatic kernel's choice. What depends on a problem's shape is checked by resolve.h.
//
// Pure functions of their arguments; any thread may call them.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/request.h"

namespace castor::attention {

// INVALID_FIELD with the path of the parameter, such as "clustered.bits", when it is out of range.
absl::Status CheckParameters(const Kernel& kernel);

// The kernel itself with parameters in range, or for Automatic the most exact one that it allows,
// with default parameters: what runs where no cost model chooses (automatic.h). CAST is never
// chosen, since only the caller has its surrogate tokens.
absl::StatusOr<Kernel> ChooseKernel(const Kernel& kernel);

}  // namespace castor::attention
