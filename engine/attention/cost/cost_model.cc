#include "engine/attention/cost/cost_model.h"

#include <algorithm>

namespace castor::attention {

namespace {

constexpr auto kOfBatch = static_cast<size_t>(CostTerm::kTasks);  // the terms before this one

}  // namespace

Costs CostsOf(const CostTerms& us) {
  Costs costs;
  for (size_t t = 0; t < kCostTerms; ++t) (t < kOfBatch ? costs.batch_us : costs.own_us) += us[t];
  return costs;
}

Costs CostsOf(const CostTerms& terms, const CostTerms& prices) {
  return CostsOf(TermCosts(terms, prices));
}

CostTerms TermCosts(const CostTerms& terms, const CostTerms& prices) {
  CostTerms us;
  for (size_t t = 0; t < kCostTerms; ++t) us[t] = terms[t] * prices[t];
  return us;
}

void AddToBatch(const CostTerms& us, CostTerms* batch) {
  for (size_t t = 0; t < kCostTerms; ++t) {
    double& sum = (*batch)[t];
    sum = t < kOfBatch ? std::max(sum, us[t]) : sum + us[t];
  }
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
