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
  // that all targets are 1. The products of terms are all that a step needs of the samples.
  constexpr int kSweeps = 20000;
  constexpr double kSettled = 1e-8;
  std::array<std::array<double, kTerms>, kTerms> products{};
  std::array<double, kTerms> targets{};
  for (const auto& sample : samples) {
    auto row = sample.terms;
    for (double& term : row) term *= sample.weight / sample.us;
    for (size_t t = 0; t < kTerms; ++t) {
      if (row[t] == 0) continue;
      targets[t] += row[t] * sample.weight;
      for (size_t u = 0; u < kTerms; ++u) products[t][u] += row[t] * row[u];
    }
  }

  std::array<double, kTerms> prices{};
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double moved = 0;  // the largest relative change of the predictions
    for (size_t t = 0; t < kTerms; ++t) {
      if (products[t][t] == 0) continue;
      double gradient = targets[t];
      for (size_t u = 0; u < kTerms; ++u) gradient -= products[t][u] * prices[u];
      const double price = std::max(0.0, prices[t] + gradient / products[t][t]);
      moved = std::max(moved, std::abs(price - prices[t]) * std::sqrt(products[t][t]));
      prices[t] = price;
    }
    if (moved < kSettled) break;
  }
  return prices;
}

// The same, with less regard for samples that are far off: a run that was held up by something else
// says little.
template <size_t kTerms>
std::array<double, kTerms> FitRobustly(std::vector<RelativeSample<kTerms>> samples) {
  constexpr int kRounds = 4;
  constexpr double kFar = 0.15;
  const std::vector<RelativeSample<kTerms>> given = samples;
  std::array<double, kTerms> prices{};
  for (int round = 0; round < kRounds; ++round) {
    prices = FitRelative<kTerms>(samples);
    for (size_t i = 0; i < given.size(); ++i) {
      double us = 0;
      for (size_t t = 0; t < kTerms; ++t) us += given[i].terms[t] * prices[t];
      const double error = std::abs(us / given[i].us - 1);
      samples[i].weight = given[i].weight * std::sqrt(std::min(1.0, kFar / std::max(error, kFar)));
    }
  }
  return prices;
}

}  // namespace castor
