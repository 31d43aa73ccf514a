// What a run of an attention kernel costs on one device: a few terms that count the kernel's work,
// each with a price that was fitted to measured runs.
//
// The functions are pure; a CostModel is constant once it has been filled, and then any thread may
// read it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "engine/attention/problem.h"

namespace castor::attention {

// The work that every kernel's time is a sum of. All but the first two count millions of
// operations over all sequences and heads; N_q and N_k are a sequence's queries and keys, R the
// rows that attend to all keys: N_q for vanilla, the min(C, N_q) centroids for the clustered ones.
enum class CostTerm {
  kLaunch,     // 1
  kSequences,  // sequences * heads
  kTokens,     // (N_q + N_k) (d + d_v): what touches every element once
  kScores,     // R N_k (d + d_v): queries with keys, weights with values
  kWeights,    // R N_k: exponentials, and the search for the top keys
  kHash,       // N_q bits d
  kLloyd,      // N_q C (iterations + 1): Hamming distances
  kExact,      // N_q k (d + d_v): the exact part of improved clustered
};
inline constexpr size_t kCostTerms = 8;
using CostTerms = std::array<double, kCostTerms>;

// The terms of a problem with these offsets ([sequences + 1] each). Zero for kernels that the
// automatic one never chooses.
CostTerms CostTermsOf(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                      std::span<const int32_t> cu_seqlens_k);

// One measured run.
struct CostSample {
  CostTerms terms{};
  double us = 0;  // > 0
};

// The non-negative prices that minimise the sum of the samples' squared relative errors. Terms that
// occur in no sample cost nothing.
CostTerms FitCosts(std::span<const CostSample> samples);

class CostModel {
 public:
  using Key = std::pair<KernelName, DType>;

  // Microseconds per unit of each term.
  void Set(KernelName kernel, DType dtype, const CostTerms& prices) {
    prices_[{kernel, dtype}] = prices;
  }

  // How long the kernel of `spec` would compute, in microseconds; nullopt if it was not measured.
  std::optional<double> Predict(const Spec& spec, std::span<const int32_t> cu_seqlens_q,
                                std::span<const int32_t> cu_seqlens_k) const;

  bool empty() const { return prices_.empty(); }
  const std::map<Key, CostTerms>& prices() const { return prices_; }

 private:
  std::map<Key, CostTerms> prices_;
};

}  // namespace castor::attention
