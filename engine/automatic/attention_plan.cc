#include "engine/automatic/attention_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "engine/attention/count.h"

namespace castor {
namespace {

using attention::Count;
using attention::Resolved;
using attention::Spec;
using attention::Variant;

// The probe's own queries and results.
Count ProbeBytes(const Plan& plan, const Resolved& resolved) {
  if (plan.probe_rows() == 0) return 0;
  const Spec& spec = resolved.spec;
  return Count(plan.ProbeOffsets(resolved.cu_seqlens_q).back()) * spec.heads *
         (Count(spec.head_dim) + spec.value_dim) * static_cast<int64_t>(SizeOf(spec.dtype));
}

}  // namespace

int32_t FidelitySampling::NextRows() {
  if (share_ == 0) return 0;
  const auto seen = static_cast<double>(seen_.fetch_add(1, std::memory_order_relaxed));
  // Picked whenever the expected number of picks passes a whole number.
  return std::floor((seen + 1) * share_) > std::floor(seen * share_) ? rows_ : 0;
}

Plan PlanAttention(const AttentionRequest& request, std::span<const Variant> variants,
                   const attention::PriceOf& price_of, FidelitySampling& sampling,
                   Resolved* resolved) {
  std::optional<attention::Ladder> ladder;
  Spec& spec = resolved->spec;
  if (const auto* automatic = std::get_if<Automatic>(&request.kernel)) {
    std::vector<attention::Rung> rungs = attention::PlanAutomatic(
        *automatic, spec, resolved->cu_seqlens_q, resolved->cu_seqlens_k, variants, price_of);
    spec.kernel = rungs.front().kernel;
    ladder.emplace(std::move(rungs), automatic->max_relative_error);
  }
  if (!attention::IsApproximate(NameOf(spec.kernel))) return {std::move(ladder), 0, false};
  int32_t rows = request.fidelity_rows;
  if (ladder) rows = std::max(rows, attention::kAutomaticFidelityRows);
  const bool reports = rows > 0;
  if (!reports) rows = sampling.NextRows();
  return {std::move(ladder), rows, reports};
}

Cost TensorCost(const Resolved& resolved) {
  Cost cost;
  cost.tokens = std::max(resolved.query_tokens, resolved.key_tokens);
  cost.bytes = resolved.staging_bytes;
  return cost;
}

Cost CostOf(const Plan& plan, const Resolved& resolved) {
  Cost cost = TensorCost(resolved);
  cost.bytes = (Count(cost.bytes) + ProbeBytes(plan, resolved)).value();
  return cost;
}

}  // namespace castor
