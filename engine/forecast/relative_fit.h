// Fits prices to measured times. A pure function.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

namespace castor {

template <size_t kTerms>
struct RelativeSample {
  std::array<double, kTerms> terms{};
  double us = 0;  // > 0
  double weight = 1;
};

template <size_t kTerms>
double Dot(const std::array<double, kTerms>& terms, const std::array<double, kTerms>& prices) {
  double sum = 0;
  for (size_t t = 0; t < kTerms; ++t) sum += terms[t] * prices[t];
  return sum;
}

// The non-negative prices that minimise the sum of the samples' squared relative errors, each times
// its weight (non-negative least squares, by coordinate descent). Terms that occur in no sample
// cost nothing.
template <size_t kTerms>
std::array<double, kTerms> FitRelative(std::span<const RelativeSample<kTerms>> samples) {
  constexpr int kSweeps = 20000;
  constexpr double kSettled = 1e-8;
  // Relative errors: every row is divided by its time, so that all targets are 1. The products of
  // terms are all that a step needs of the samples.
  std::array<std::array<double, kTerms>, kTerms> products{};
  std::array<double, kTerms> targets{};
  for (const auto& sample : samples) {
    auto row = sample.terms;
    for (double& term : row) term *= sample.weight / sample.us;
    for (size_t t = 0; t < kTerms; ++t) {
      targets[t] += row[t] * sample.weight;
      for (size_t u = 0; u < kTerms; ++u) products[t][u] += row[t] * row[u];
    }
  }
  std::array<double, kTerms> prices{};
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double moved = 0;  // the largest relative change of the predictions
    for (size_t t = 0; t < kTerms; ++t) {
      if (products[t][t] == 0) continue;
      const double step = (targets[t] - Dot(products[t], prices)) / products[t][t];
      const double price = std::max(0.0, prices[t] + step);
      moved = std::max(moved, std::abs(price - prices[t]) * std::sqrt(products[t][t]));
      prices[t] = price;
    }
    if (moved < kSettled) break;
  }
  return prices;
}

}  // namespace castor
