// CAST's affinities in float64, for tests that want to know how clusters came about.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <variant>
#include <vector>

#include "tests/unit/attention/cast_problem.h"

namespace castor::attention {

// Step 2 in float64: [tokens, clusters] of sequence s, for the heads [begin, end).
inline std::vector<double> ExactCastAffinities(const CastProblem& layer, int64_t s, int64_t begin,
                                               int64_t end) {
  const Spec& spec = layer.problem.spec;
  const Problem& view = layer.problem.view;
  const bool laplace =
      std::get<Cast>(spec.kernel).attention_function == Cast::AttentionFunction::kLaplace;
  const int64_t first = view.cu_seqlens_q[s];
  const int64_t tokens = view.cu_seqlens_q[s + 1] - first;
  std::vector<double> affinities(tokens * spec.surrogates);
  for (int64_t i = 0; i < tokens; ++i) {
    const double share = 1 / (1 + std::exp(-double{layer.gate[first + i]}));
    for (int64_t h = begin; h < end; ++h) {
      for (const bool by_query : {true, false}) {
        const Elements& rows = by_query ? layer.problem.query : layer.problem.key;
        const int64_t stride = by_query ? view.query_stride : view.key_stride;
        std::vector<double> f(spec.surrogates);
        for (int64_t c = 0; c < spec.surrogates; ++c) {
          for (int64_t e = 0; e < spec.head_dim; ++e) {
            f[c] += rows.Get((first + i) * stride + h * spec.head_dim + e) *
                    layer.surrogates.Get((c * spec.heads + h) * spec.head_dim + e);
          }
          f[c] *= spec.softmax_scale;
        }
        double sum = 0;
        const double max = *std::max_element(f.begin(), f.end());
        for (double& x : f) {
          x = laplace ? 0.5 * (1 + std::erf((x - std::sqrt(0.5)) * std::sqrt(2 * M_PI)))
                      : std::exp(x - max);
          sum += x;
        }
        for (int64_t c = 0; c < spec.surrogates; ++c) {
          affinities[i * spec.surrogates + c] +=
              (by_query ? share : 1 - share) * (laplace ? f[c] : f[c] / sum);
        }
      }
    }
  }
  return affinities;
}

}  // namespace castor::attention
