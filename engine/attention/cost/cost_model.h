// What a run of an attention kernel costs on one device: the terms of cost_terms.h, each with a
// price that was fitted to measured runs.
//
// The functions are pure; a CostModel is constant once it has been filled, and then any thread may
// read it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "engine/attention/cost/cost_terms.h"
#include "engine/attention/cost/relative_fit.h"
#include "engine/attention/problem.h"

namespace castor::attention {

// One measured run.
using CostSample = RelativeSample<kCostTerms>;

inline CostTerms FitCosts(std::span<const CostSample> samples) {
  return FitRobustly<kCostTerms>({samples.begin(), samples.end()});
}

// Microseconds for these terms at these prices: what a batch takes whoever is in it, and the rest.
struct Costs {
  double batch_us = 0;
  double own_us = 0;

  double total_us() const { return batch_us + own_us; }
};
Costs CostsOf(const CostTerms& us);  // of each term
Costs CostsOf(const CostTerms& terms, const CostTerms& prices);

// Microseconds of each term.
CostTerms TermCosts(const CostTerms& terms, const CostTerms& prices);

// Adds a request's costs to those of a batch, which pays once for what requests share.
void AddToBatch(const CostTerms& us, CostTerms* batch);

class CostModel {
 public:
  using Key = std::pair<KernelName, DType>;

  // Microseconds per unit of each term.
  void Set(KernelName kernel, DType dtype, const CostTerms& prices) {
    prices_[{kernel, dtype}] = prices;
  }

  // The threads that the prices hold for.
  void SetTeam(const Team& team) { team_ = team; }
  const Team& team() const { return team_; }

  // The prices of a kernel, or nullptr if it was not measured.
  const CostTerms* Find(KernelName kernel, DType dtype) const;

  // How long the kernel of `spec` would compute, in microseconds; nullopt if it was not measured.
  std::optional<double> Predict(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                std::span<const int32_t> cu_seqlens_k) const;

  bool empty() const { return prices_.empty(); }
  const std::map<Key, CostTerms>& prices() const { return prices_; }

 private:
  std::map<Key, CostTerms> prices_;
  Team team_;
};

}  // namespace castor::attention
