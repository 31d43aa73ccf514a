// What is decided about an encode request that asks for the automatic kernel and states the cosine
// that it needs: the kernels that may run.
//
// Any thread.
#pragma once

#include <cstdint>
#include <span>

#include "engine/attention/variants.h"
#include "engine/jobs/attention_plan.h"
#include "engine/jobs/models.h"
#include "engine/jobs/plan.h"
#include "engine/jobs/predictor.h"
#include "engine/request.h"

namespace castor {

// Query rows per sequence and layer that attend exactly beside an approximation.
inline constexpr int32_t kEncodeProbeRows = 16;

class EncodePlanner {
 public:
  // `variants` are the device's. `share` of the approximate answers that meet their allowance are
  // compared with exact ones. Both references must outlive the object.
  EncodePlanner(const Predictor& predictor, std::span<const attention::Variant> variants,
                double share)
      : predictor_(predictor), variants_(variants), compared_(share, 1) {}

  // The plan for sequences with these offsets. `kernel` is what the request resolved to; it becomes
  // the plan's first. A plan with one kernel has no probe, and no overhead: that is the case unless
  // the request states a cosine, and an approximation should take at most half of the time of exact
  // attention, all layers included. That is judged by measured prices alone.
  //
  // A plan that is `final` is not made again once the request is tokenized.
  Plan PlanFor(const EncodeRequest& request, const LoadedModel& model,
               std::span<const int32_t> cu_seqlens, bool final, Kernel* kernel);

 private:
  const Predictor& predictor_;
  const std::span<const attention::Variant> variants_;
  FidelitySampling compared_;
};

}  // namespace castor
