#include "tests/support/twins/vanilla.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "tests/support/twins/tensors.h"

namespace castor::attention {
namespace {

// Positions count from the sequence's first key, in whose place visible keys count too.
bool Sees(const Spec& spec, bool causal, int64_t query, int64_t key, int64_t visible) {
  if (causal && key > query) return false;
  if (spec.window.right >= 0 && key > query + spec.window.right) return false;
  return spec.window.left < 0 || key >= query - spec.window.left || key < visible;
}

// What the score of a query at position `i` and a key at `j` gets from these.
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
    const Place at = problem.places.empty()
                         ? Place{keys - (problem.cu_seqlens_q[s + 1] - problem.cu_seqlens_q[s]),
                                 spec.window.always_visible}
                         : problem.places[s];
    for (int64_t i = problem.cu_seqlens_q[s]; i < problem.cu_seqlens_q[s + 1]; ++i) {
      const int64_t place = i - problem.cu_seqlens_q[s] + at.shift;
      std::vector<int64_t> seen;
      for (int64_t j = 0; j < keys; ++j) {
        if (Sees(spec, causal, place, j, at.visible)) seen.push_back(j);
      }
      for (int64_t h = 0; h < spec.heads; ++h) {
        std::vector<double> scores;
        for (const int64_t j : seen) {
          double score =
              spec.softmax_scale * Dot(in.query(i, h), in.key(key_begin + j, h), spec.head_dim);
          if (spec.softcap > 0) score = spec.softcap * std::tanh(score / spec.softcap);
          scores.push_back(score + BiasAt(spec.bias, h, place, j) +
                           KeyBiasAt(spec, problem, key_begin + j, h));
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
