// What is decided about an attention request when it is submitted: the kernels that the automatic
// one stands for, whether the error of an approximation is measured, and the memory that all of it
// takes.
//
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "engine/attention/cost_model.h"
#include "engine/attention/resolve.h"
#include "engine/attention/variants.h"
#include "engine/jobs/admission.h"
#include "engine/jobs/plan.h"
#include "engine/request.h"

namespace castor {

// Picks the share of the requests whose error is measured though they do not ask: evenly spread,
// by counting. Which one is picked changes no result.
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

// Replaces the kernel of `resolved` by the first one of the plan.
Plan PlanAttention(const AttentionRequest& request, std::span<const attention::Variant> variants,
                   const attention::CostModel& costs, FidelitySampling& sampling,
                   attention::Resolved* resolved);

// Memory beside the tensors, in bytes; attention::Count::kMost for more than can be counted.
struct PlanMemory {
  int64_t total = 0;  // while it runs
  // The part that grows with the request. The rest, such as a scratch area per thread, is the same
  // for every request, and there once however many wait.
  int64_t own = 0;
};
PlanMemory MemoryOf(const Plan& plan, const attention::Resolved& resolved,
                    std::span<const attention::Variant> variants);

// What a request takes of the budgets by its tensors alone, which is exact and costs nothing to
// know: what to compare before anything else is computed from its numbers.
Cost TensorCost(const attention::Resolved& resolved);

// What it takes in all.
Cost CostOf(const attention::Resolved& resolved, const PlanMemory& memory);

}  // namespace castor
