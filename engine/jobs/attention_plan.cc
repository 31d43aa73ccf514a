#include "engine/jobs/attention_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "engine/attention/automatic.h"
#include "engine/attention/count.h"

namespace castor {
namespace {

using attention::Count;
using attention::Resolved;
using attention::Spec;
using attention::Variant;

int64_t WorkspaceBytes(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                       std::span<const int32_t> cu_seqlens_k, std::span<const Variant> variants) {
  const Variant* const variant = attention::FindVariant(variants, spec);
  if (variant == nullptr || variant->workspace_bytes == nullptr) return 0;
  return variant->workspace_bytes(spec, cu_seqlens_q, cu_seqlens_k);
}

// Takes the larger of both, field by field.
void Raise(PlanMemory* memory, const PlanMemory& other) {
  memory->total = std::max(memory->total, other.total);
  memory->own = std::max(memory->own, other.own);
}

PlanMemory MemoryOf(const Spec& spec, const Resolved& resolved, std::span<const Variant> variants) {
  constexpr int32_t kOneToken[] = {0, 1};
  PlanMemory memory;
  memory.total = WorkspaceBytes(spec, resolved.cu_seqlens_q, resolved.cu_seqlens_k, variants);
  const int64_t shared = WorkspaceBytes(spec, kOneToken, kOneToken, variants);
  memory.own =
      memory.total == Count::kMost ? memory.total : std::max<int64_t>(0, memory.total - shared);
  return memory;
}

// The probe's own queries and results.
Count ProbeBytes(const Plan& plan, const Resolved& resolved) {
  if (plan.probe_rows() == 0) return 0;
  Count rows = 0;
  const std::vector<int32_t>& offsets = resolved.cu_seqlens_q;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    rows += std::min(plan.probe_rows(), offsets[s + 1] - offsets[s]);
  }
  const Spec& spec = resolved.spec;
  return rows * spec.heads * (Count(spec.head_dim) + spec.value_dim) *
         static_cast<int64_t>(SizeOf(spec.dtype));
}

}  // namespace

int32_t FidelitySampling::NextRows() {
  if (share_ == 0) return 0;
  const auto seen = static_cast<double>(seen_.fetch_add(1, std::memory_order_relaxed));
  // Picked whenever the expected number of picks passes a whole number.
  return std::floor((seen + 1) * share_) > std::floor(seen * share_) ? rows_ : 0;
}

Plan PlanAttention(const AttentionRequest& request, std::span<const Variant> variants,
                   const attention::CostModel& costs, FidelitySampling& sampling,
                   Resolved* resolved) {
  std::optional<attention::Ladder> ladder;
  Spec& spec = resolved->spec;
  if (const auto* automatic = std::get_if<Automatic>(&request.kernel)) {
    std::vector<attention::Rung> rungs = attention::PlanAutomatic(
        *automatic, spec, resolved->cu_seqlens_q, resolved->cu_seqlens_k, variants, costs);
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

PlanMemory MemoryOf(const Plan& plan, const Resolved& resolved, std::span<const Variant> variants) {
  PlanMemory memory;
  if (!plan.automatic()) {
    memory = MemoryOf(resolved.spec, resolved, variants);
  } else {
    Spec spec = resolved.spec;
    for (const attention::Rung& rung : plan.rungs()) {
      spec.kernel = rung.kernel;
      Raise(&memory, MemoryOf(spec, resolved, variants));
    }
  }
  const Count probe = ProbeBytes(plan, resolved);
  memory.total = (probe + memory.total).value();
  memory.own = (probe + memory.own).value();
  return memory;
}

Cost TensorCost(const Resolved& resolved) {
  Cost cost;
  cost.tokens = std::max(resolved.query_tokens, resolved.key_tokens);
  cost.bytes = resolved.staging_bytes;
  return cost;
}

Cost CostOf(const Resolved& resolved, const PlanMemory& memory) {
  Cost cost = TensorCost(resolved);
  cost.bytes = (Count(cost.bytes) + memory.own).value();
  return cost;
}

}  // namespace castor
