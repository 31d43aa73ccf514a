#include "engine/forecast/cost_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace castor {
namespace {

constexpr double kAssumedPrice = 2;

CostTerms Filled(double price) {
  CostTerms prices;
  prices.fill(price);
  return prices;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

CostTerms FitCosts(std::span<const CostSample> samples) {
  // What the reference's proportions count, in runs. A calibration has some fifteen of a kernel.
  constexpr double kPrior = 0.5;
  // A relative error beyond which a run counts less (iteratively reweighted least squares, with
  // Huber's weights).
  constexpr double kFar = 0.15;
  constexpr int kRounds = 5;
  std::vector<double> ratios;
  for (const CostSample& sample : samples) {
    ratios.push_back(sample.us / Dot(sample.terms, Filled(1)));
  }
  const double usual = Median(std::move(ratios));
  CostTerms prices = Filled(usual);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<CostSample> weighted(samples.begin(), samples.end());
    for (CostSample& sample : weighted) {
      const double error = std::abs(Dot(sample.terms, prices) / sample.us - 1);
      sample.weight *= std::sqrt(kFar / std::max(error, kFar));
    }
    for (size_t t = 0; t < kCostTerms; ++t) {
      CostSample& prior = weighted.emplace_back(CostSample{.us = usual, .weight = kPrior});
      prior.terms[t] = 1;
    }
    prices = FitRelative<kCostTerms>(weighted);
  }
  return prices;
}

Costs CostModel::Of(const attention::Spec& spec, std::span<const int32_t> cu_seqlens_q,
                    std::span<const int32_t> cu_seqlens_k,
                    std::span<const attention::Place> places) const {
  constexpr auto kLaunch = static_cast<size_t>(CostTerm::kLaunch);
  const auto found = prices_.find({NameOf(spec.kernel), spec.dtype});
  const CostTerms prices = found == prices_.end() ? Filled(kAssumedPrice) : found->second;
  const CostTerms terms = CostTermsOf(spec, cu_seqlens_q, cu_seqlens_k, workers_, places);
  const double batch_us = terms[kLaunch] * prices[kLaunch];
  return {.batch_us = batch_us, .own_us = Dot(terms, prices) - batch_us};
}

std::optional<double> CostModel::Predict(const attention::Spec& spec,
                                         std::span<const int32_t> cu_seqlens_q,
                                         std::span<const int32_t> cu_seqlens_k) const {
  if (!Knows(NameOf(spec.kernel), spec.dtype)) return std::nullopt;
  return Of(spec, cu_seqlens_q, cu_seqlens_k).total_us();
}

}  // namespace castor
