// What runs say about the prices of a cost model: a factor for each term, learned from the times of
// runs by recursive least squares (a Kalman filter whose state are the factors' logarithms).
//
// The prices are trusted to some extent at first, and so is each run, so factors follow slowly and
// only where runs tell terms apart: what a run with many short sequences took says little about one
// with a long sequence.
//
// Runs that are slow together tell of the machine, which others may share, and not of the prices.
// So a pace that all terms have in common takes part in the filter, and is forgotten within some
// twenty runs. It is no part of what is predicted: the next run comes too late for it, or another
// request waits before it. A pace that lasts becomes the prices'. Not thread-safe.
#pragma once

#include <array>

#include "engine/attention/cost/cost_terms.h"

namespace castor {

class LearnedPrices {
 public:
  // No factor is more than this, or less than its inverse.
  static constexpr double kMost = 4;

  LearnedPrices();

  // Microseconds of each term, by what was learned, of those at the measured prices.
  attention::CostTerms Corrected(attention::CostTerms costs) const;

  // A run whose terms cost so much at the measured prices took so long. Microseconds, > 0.
  void Learn(const attention::CostTerms& costs, double us);

 private:
  // The terms' factors, then the pace.
  static constexpr size_t kPace = attention::kCostTerms;
  static constexpr size_t kStates = kPace + 1;
  using States = std::array<double, kStates>;

  void Forget();

  attention::CostTerms factors_;
  double pace_ = 0;                      // a logarithm
  std::array<States, kStates> doubt_{};  // covariance of the logarithms
};

}  // namespace castor
