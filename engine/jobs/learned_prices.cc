#include "engine/jobs/learned_prices.h"

#include <algorithm>
#include <cmath>

namespace castor {
namespace {

using attention::CostTerms;
using attention::kCostTerms;

// Standard deviations, relative: of a measured price, of a run with known prices and pace, and of
// what prices change from one run to the next, each by itself and all together. Replayed on runs of
// prediction_bench (tests/bench/logs/2026-11-23-prediction.md), as are those below.
constexpr double kPriceDoubt = 0.4;
constexpr double kRunDoubt = 0.25;
constexpr double kDrift = 0.002;
constexpr double kCommonDrift = 0.015;

// Of the pace at any time, and the share of it that a run leaves to the next.
constexpr double kPaceDoubt = 0.15;
constexpr double kPaceKept = 0.95;

// The most that a run counts as wrong, as a logarithm: a single slow one hardly matters.
constexpr double kMostSurprise = 0.4;

}  // namespace

LearnedPrices::LearnedPrices() {
  factors_.fill(1);
  for (size_t t = 0; t < kCostTerms; ++t) doubt_[t][t] = kPriceDoubt * kPriceDoubt;
  doubt_[kPace][kPace] = kPaceDoubt * kPaceDoubt;
}

CostTerms LearnedPrices::Corrected(CostTerms costs) const {
  for (size_t t = 0; t < kCostTerms; ++t) costs[t] *= factors_[t];
  return costs;
}

void LearnedPrices::Learn(const CostTerms& costs, double us) {
  const CostTerms corrected = Corrected(costs);
  double predicted = 0;
  for (const double cost : corrected) predicted += cost;
  if (!(predicted > 0) || !(us > 0) || !std::isfinite(us) || !std::isfinite(predicted)) return;

  // What a state's change by so much changes the logarithm of the prediction by.
  States shares;
  for (size_t t = 0; t < kCostTerms; ++t) shares[t] = corrected[t] / predicted;
  shares[kPace] = 1;
  States gain{};
  double variance = kRunDoubt * kRunDoubt;
  for (size_t t = 0; t < kStates; ++t) {
    for (size_t u = 0; u < kStates; ++u) gain[t] += doubt_[t][u] * shares[u];
    variance += shares[t] * gain[t];
  }
  const double surprise =
      std::clamp(std::log(us / predicted) - pace_, -kMostSurprise, kMostSurprise);
  for (size_t t = 0; t < kCostTerms; ++t) {
    factors_[t] =
        std::clamp(factors_[t] * std::exp(gain[t] / variance * surprise), 1 / kMost, kMost);
  }
  pace_ += gain[kPace] / variance * surprise;
  for (size_t t = 0; t < kStates; ++t) {
    for (size_t u = 0; u < kStates; ++u) doubt_[t][u] -= gain[t] * gain[u] / variance;
  }
  Forget();
}

// The machine may change until the next run.
void LearnedPrices::Forget() {
  pace_ *= kPaceKept;
  for (size_t t = 0; t < kStates; ++t) {
    doubt_[kPace][t] *= kPaceKept;
    doubt_[t][kPace] *= kPaceKept;
  }
  doubt_[kPace][kPace] += kPaceDoubt * kPaceDoubt * (1 - kPaceKept * kPaceKept);
  for (size_t t = 0; t < kCostTerms; ++t) {
    doubt_[t][t] += kDrift * kDrift;
    for (size_t u = 0; u < kCostTerms; ++u) doubt_[t][u] += kCommonDrift * kCommonDrift;
  }
  // What no run has told for long is doubted no more than a measured price.
  for (size_t t = 0; t < kCostTerms; ++t) {
    if (doubt_[t][t] <= kPriceDoubt * kPriceDoubt) continue;
    const double scale = kPriceDoubt / std::sqrt(doubt_[t][t]);
    for (size_t u = 0; u < kStates; ++u) {
      doubt_[t][u] *= scale;
      doubt_[u][t] *= scale;
    }
  }
}

}  // namespace castor
