#include "tests/support/twins/vanilla.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tests/support/twins/tensors.h"

namespace castor::attention {
namespace {

// What the score of query `i` and key `j` gets from their places.
double BiasAt(const PositionBias& bias, int64_t head, int64_t i, int64_t j) {
  double sum = 0;
  if (bias.table != nullptr) {
    const int64_t distance = std::clamp(j - i, -bias.reach, bias.reach);
    sum += bias.table[head * (2 * bias.reach + 1) + distance + bias.reach];
  }
  if (bias.slopes != nullptr)
    sum -= double{bias.slopes[head]} * static_cast<double>(std::abs(j - i));
  return sum;
}

}  // namespace

std::vector<double> VanillaReference(const Spec& spec, const Problem& problem,
                                     std::vector<double>* log_sum_exp) {
  const bool causal = std::get<Vanilla>(spec.kernel).causal;
  const ReferenceTensors in(spec, problem);
  if (log_sum_exp != nullptr) log_sum_exp->clear();
  std::vector<double> output(problem.query_tokens() * spec.heads * spec.value_dim);

  for (int64_t s = 0; s < problem.sequences(); ++s) {
    const int64_t key_begin = problem.cu_seqlens_k[s];
    const int64_t keys = problem.cu_seqlens_k[s + 1] - key_begin;
    for (int64_t i = problem.cu_seqlens_q[s]; i < problem.cu_seqlens_q[s + 1]; ++i) {
      const int64_t place = i - problem.cu_seqlens_q[s];
      std::vector<int64_t> seen;
      for (int64_t j = 0; j < keys; ++j) {
        if (causal && j > place) continue;
        if (spec.window.has_value() && std::abs(j - place) > *spec.window) continue;
        seen.push_back(j);
      }
      for (int64_t h = 0; h < spec.heads; ++h) {
        std::vector<double> scores;
        for (const int64_t j : seen) {
          scores.push_back(spec.softmax_scale *
                               Dot(in.query(i, h), in.key(key_begin + j, h), spec.head_dim) +
                           BiasAt(spec.bias, h, place, j));
        }
        if (log_sum_exp != nullptr) log_sum_exp->push_back(LogSumExp(scores));
        const std::vector<double> weights = Softmax(std::move(scores));
        double* const out = &output[(i * spec.heads + h) * spec.value_dim];
        for (size_t k = 0; k < seen.size(); ++k) {
          const double* const value = in.value(key_begin + seen[k], h);
          for (int64_t e = 0; e < spec.value_dim; ++e) out[e] += weights[k] * value[e];
        }
      }
    }
  }
  return output;
}

}  // namespace castor::attention
