// The attention kernel of an encode request, and which of them a model refuses.
//
// Pure; any thread.
#pragma once

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/request.h"

namespace castor {

// The kernel that the request names, else the model's own. Of the automatic one the most exact that
// it allows. A model with CAST layers runs no other kernel, and no other model runs CAST. One with
// causal layers runs causal vanilla alone.
// INVALID_FIELD and KERNEL_NOT_AVAILABLE name the field.
absl::StatusOr<Kernel> ChooseEncodeKernel(const EncodeRequest& request, const ModelInfo& info);

}  // namespace castor
