// An encode request's checks: its model, its input, and the attention kernel that it gets.
//
// Pure; any thread.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "engine/attention/variants.h"
#include "engine/engine.h"
#include "engine/models/models.h"
#include "engine/request.h"
#include "engine/requests/work.h"

namespace castor {

// The kernel that the request names, else the model's own. Of the automatic one the most exact that
// it allows. A model with CAST layers runs no other kernel, and no other model runs CAST. One with
// causal layers runs causal vanilla alone.
// INVALID_FIELD and KERNEL_NOT_AVAILABLE name the field.
absl::StatusOr<Kernel> ChooseEncodeKernel(const EncodeRequest& request, const ModelInfo& info);

// Everything that can be checked before the request is admitted. Of what it brings only the ranges
// are copied.
// Errors as of ModelSet::FindEncoder, encoder::Model::CheckInput, ChooseEncodeKernel and
// encoder::CheckOption.
absl::StatusOr<EncodeWork> ResolveEncode(EncodeRequest request, const ModelSet& models,
                                         std::span<const attention::Variant> variants,
                                         const EngineOptions& limits);

}  // namespace castor
