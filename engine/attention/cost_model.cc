#include "engine/attention/cost_model.h"

namespace castor::attention {

Costs CostsOf(const CostTerms& terms, const CostTerms& prices) {
  constexpr auto kOfBatch = static_cast<size_t>(CostTerm::kTasks);  // the terms before this one
  Costs costs;
  for (size_t t = 0; t < kCostTerms; ++t) {
    (t < kOfBatch ? costs.batch_us : costs.own_us) += terms[t] * prices[t];
  }
  return costs;
}

const CostTerms* CostModel::Find(KernelName kernel, DType dtype) const {
  const auto found = prices_.find({kernel, dtype});
  return found == prices_.end() ? nullptr : &found->second;
}

std::optional<double> CostModel::Predict(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                         std::span<const int32_t> cu_seqlens_k) const {
  const CostTerms* const prices = Find(NameOf(spec.kernel), spec.dtype);
  if (prices == nullptr) return std::nullopt;
  return CostsOf(CostTermsOf(spec, cu_seqlens_q, cu_seqlens_k, team_), *prices).total_us();
}

}  // namespace castor::attention
