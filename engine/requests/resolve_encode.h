// The checks of an encode request: its model, its input, and the choice of its attention kernel.
//
// Pure; any thread.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "engine/attention/variants.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "engine/requests/work.h"
#include "engine/residents/model_list.h"

namespace castor {

// The kernel that the request names, or the model's own. For the automatic kernel, the most exact
// kernel that it allows. Models with CAST layers run CAST alone, and no other model runs it. Models
// with causal layers run causal vanilla alone.
// INVALID_FIELD and KERNEL_NOT_AVAILABLE name the field.
absl::StatusOr<Kernel> ChooseEncodeKernel(const EncodeRequest& request, const ModelInfo& info);

// Makes all checks that are possible before the request is admitted. Copies only the ranges from
// the caller's memory. Errors as for encoder::Model::CheckInput, ChooseEncodeKernel and
// encoder::CheckOption. Requires a model that encodes.
absl::StatusOr<EncodeWork> ResolveEncode(EncodeRequest request, ModelUse model,
                                         std::span<const attention::Variant> variants,
                                         const EngineOptions& limits);

}  // namespace castor
