// What is decided about an attention request when it is submitted: the kernels that the automatic
// one may run, whether the error of an approximation is measured, and the staging memory needed.
//
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "engine/attention/resolve.h"
#include "engine/attention/variants.h"
#include "engine/automatic/automatic.h"
#include "engine/automatic/plan.h"
#include "engine/request.h"
#include "engine/requests/cost.h"

namespace castor {

// Picks the requests whose error is measured although they did not ask for it: evenly spread, by
// counting. The pick changes no result.
class FidelitySampling {
 public:
  FidelitySampling(double share, int32_t rows) : share_(share), rows_(rows) {}

  // Rows per sequence for the next request that could be measured; 0 if it is not picked.
  int32_t NextRows();

 private:
  const double share_;
  const int32_t rows_;
  std::atomic<uint64_t> seen_ = 0;
};

// Replaces the kernel of `resolved` with the plan's first one.
Plan PlanAttention(const AttentionRequest& request, std::span<const attention::Variant> variants,
                   const attention::PriceOf& price_of, FidelitySampling& sampling,
                   attention::Resolved* resolved);

// The budget share of a request's tensors alone. It is exact and free to compute, so it is checked
// before anything else is computed from the request's sizes.
Cost TensorCost(const attention::Resolved& resolved);

// The budget share of the whole request: its tensors, and the rows that a probe of the error
// stages.
Cost CostOf(const Plan& plan, const attention::Resolved& resolved);

}  // namespace castor
