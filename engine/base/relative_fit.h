// Fits prices to measured times. A pure function.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace castor {

template <size_t kTerms>
struct RelativeSample {
  std::array<double, kTerms> terms{};
  double us = 0;  // > 0
  double weight = 1;
};

// The non-negative prices that minimise the sum of the samples' squared relative errors, each times
// its weight. Terms that occur in no sample cost nothing.
template <size_t kTerms>
std::array<double, kTerms> FitRelative(std::span<const RelativeSample<kTerms>> samples) {
  // Coordinate descent: each step finds the best price of one term with the others held, which
  // solves the problem since it is convex. Relative errors: every row is divided by its time, so
  // that all targets are 1.
  constexpr int kSweeps = 20000;
  constexpr double kSettled = 1e-9;
  std::vector<std::array<double, kTerms>> rows;
  for (const auto& sample : samples) {
    auto& row = rows.emplace_back(sample.terms);
    for (double& term : row) term *= sample.weight / sample.us;
  }
  std::array<double, kTerms> squares{};
  for (const auto& row : rows) {
    for (size_t t = 0; t < kTerms; ++t) squares[t] += row[t] * row[t];
  }

  std::array<double, kTerms> prices{};
  std::vector<double> missing;
  for (const auto& sample : samples) missing.push_back(sample.weight);
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double moved = 0;  // the largest relative change of a prediction
    for (size_t t = 0; t < kTerms; ++t) {
      if (squares[t] == 0) continue;
      double gradient = 0;
      for (size_t i = 0; i < rows.size(); ++i) gradient += rows[i][t] * missing[i];
      const double price = std::max(0.0, prices[t] + gradient / squares[t]);
      const double step = price - prices[t];
      prices[t] = price;
      for (size_t i = 0; i < rows.size(); ++i) {
        missing[i] -= step * rows[i][t];
        moved = std::max(moved, std::abs(step * rows[i][t]));
      }
    }
    if (moved < kSettled) break;
  }
  return prices;
}

}  // namespace castor
