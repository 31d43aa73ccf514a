// What runs say about the prices of a cost model: a factor for each term, learned from the times of
// runs by recursive least squares (a Kalman filter whose state are the factors' logarithms).
//
// The prices are trusted to some extent at first, and so is each run, so factors follow slowly and
// only where runs tell terms apart: what a run with many short sequences took says little about one
// with a long sequence. Not thread-safe.
#pragma once

#include <array>

#include "engine/attention/cost_terms.h"

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
  using Matrix = std::array<attention::CostTerms, attention::kCostTerms>;

  attention::CostTerms factors_;
  Matrix doubt_{};  // covariance of their logarithms
};

}  // namespace castor
