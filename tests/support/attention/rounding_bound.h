// Bounds, from the inputs, how far each element of clustered attention in float32 may be from the
// twin.
//
// A softmax turns an absolute error of its scores into a relative error of its weights, and float32
// rounds a score in proportion to its terms. So with scores in the thousands, weights are good to
// only a few digits. No single tolerance fits all rows: a row dominated by one score must be right
// in every digit, but a row with two near maxima may lie anywhere between their values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/support/attention/random_problem.h"
#include "tests/support/attention/spec.h"
#include "tests/support/twins/clustered.h"
#include "tests/support/twins/tensors.h"

namespace castor::attention {

// log sum exp(x) over `keys`.
inline double LogSum(const std::vector<double>& x, const std::vector<int64_t>& keys) {
  double most = -INFINITY;
  for (const int64_t j : keys) most = std::max(most, x[j]);
  double sum = 0;
  for (const int64_t j : keys) sum += std::exp(x[j] - most);
  return most + std::log(sum);
}

// Logarithms of a row's weights, [keys], from its centroid's scores and, if there are top keys,
// from its own.
inline std::vector<double> LogWeights(const std::vector<double>& centroid,
                                      const std::vector<double>& own, int64_t topk) {
  std::vector<int64_t> order(centroid.size());
  for (size_t j = 0; j < order.size(); ++j) order[j] = static_cast<int64_t>(j);
  std::vector<double> weights = centroid;
  const double all = LogSum(centroid, order);
  for (double& weight : weights) weight -= all;
  if (topk == 0) return weights;
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return centroid[a] > centroid[b]; });
  order.resize(std::min<size_t>(topk, order.size()));
  const double mass = LogSum(centroid, order) - all;
  const double sum = LogSum(own, order);
  for (const int64_t j : order) weights[j] = mass + own[j] - sum;
  return weights;
}

// Error bounds for the rows of a problem of one sequence, [tokens, heads, value_dim]; `expected`
// holds the twin's rows.
//
// With u = 2^-24, a score is off by delta_j = (sqrt(members + head_dim) + 4) u scale sum_e |q_e
// k_je|. The sums over members and dimensions round at each term, and these errors add up like a
// random walk; the scale, the maximum and the exponential's argument round once each. A softmax
// divides two sums, so its weights are off by a factor of at most exp(2 delta). An improved row's
// weights are products of two softmaxes. Weights sum to 1 despite their errors, so an error counts
// only times the distance of the value from the row. The sums of weights and values add 32 u of
// their terms' size.
inline std::vector<double> RoundingBounds(const OwnedProblem& problem,
                                          const std::vector<double>& expected) {
  constexpr double kUnit = 0x1p-24;
  const Spec& spec = problem.spec;
  const ReferenceTensors in(spec, problem.view);
  const std::vector<int32_t> labels = ClusterLabels(spec, problem.view);
  const auto* const improved = std::get_if<ImprovedClustered>(&spec.kernel);
  const int64_t topk = improved == nullptr ? 0 : improved->topk;
  const int64_t queries = problem.view.query_tokens();
  const int64_t keys = problem.view.key_tokens();
  std::vector<double> bounds(expected.size());
  for (int64_t h = 0; h < spec.heads; ++h) {
    for (int64_t i = 0; i < queries; ++i) {
      std::vector<double> centroid(keys);
      std::vector<double> own(keys);
      std::vector<double> centroid_size(keys);
      std::vector<double> own_size(keys);
      double members = 0;
      for (int64_t m = 0; m < queries; ++m) {
        if (labels[m * spec.heads + h] != labels[i * spec.heads + h]) continue;
        ++members;
        for (int64_t j = 0; j < keys; ++j) {
          double score = 0;
          double size = 0;
          for (int64_t e = 0; e < spec.head_dim; ++e) {
            const double term = spec.softmax_scale * in.query(m, h)[e] * in.key(j, h)[e];
            score += term;
            size += std::abs(term);
          }
          centroid[j] += score;
          centroid_size[j] += size;
          if (m == i) own[j] = score, own_size[j] = size;
        }
      }
      double most = 0;
      for (int64_t j = 0; j < keys; ++j) {
        centroid[j] /= members;
        most = std::max(most, centroid_size[j] / members);
        if (topk > 0) most = std::max(most, own_size[j]);
      }
      const double roundings = std::sqrt(members + static_cast<double>(spec.head_dim)) + 4;
      const double slack = (topk == 0 ? 2 : 4) * roundings * kUnit * most;
      const std::vector<double> weights = LogWeights(centroid, own, topk);
      const double* const row = &expected[(i * spec.heads + h) * spec.value_dim];
      double* const bound = &bounds[(i * spec.heads + h) * spec.value_dim];
      for (int64_t j = 0; j < keys; ++j) {
        const double weight = std::exp(weights[j]);
        const double error = std::exp(std::min(0.0, weights[j] + slack)) - weight;
        for (int64_t e = 0; e < spec.value_dim; ++e) {
          const double value = in.value(j, h)[e];
          bound[e] += error * std::abs(value - row[e]) + 32 * kUnit * weight * std::abs(value);
        }
      }
    }
  }
  return bounds;
}

}  // namespace castor::attention
