#include "tests/support/twins/vanilla.h"

#include <utility>

#include "tests/support/twins/tensors.h"

namespace castor::attention {

std::vector<double> VanillaReference(const Spec& spec, const Problem& problem) {
  const bool causal = std::get<Vanilla>(spec.kernel).causal;
  const ReferenceTensors in(spec, problem);
  std::vector<double> output(problem.query_tokens() * spec.heads * spec.value_dim);

  for (int64_t s = 0; s < problem.sequences(); ++s) {
    const int64_t key_begin = problem.cu_seqlens_k[s];
    const int64_t keys = problem.cu_seqlens_k[s + 1] - key_begin;
    for (int64_t i = problem.cu_seqlens_q[s]; i < problem.cu_seqlens_q[s + 1]; ++i) {
      const int64_t seen = causal ? i - problem.cu_seqlens_q[s] + 1 : keys;
      for (int64_t h = 0; h < spec.heads; ++h) {
        std::vector<double> scores(seen);
        for (int64_t j = 0; j < seen; ++j) {
          scores[j] =
              spec.softmax_scale * Dot(in.query(i, h), in.key(key_begin + j, h), spec.head_dim);
        }
        const std::vector<double> weights = Softmax(std::move(scores));
        double* const out = &output[(i * spec.heads + h) * spec.value_dim];
        for (int64_t j = 0; j < seen; ++j) {
          const double* const value = in.value(key_begin + j, h);
          for (int64_t e = 0; e < spec.value_dim; ++e) out[e] += weights[j] * value[e];
        }
      }
    }
  }
  return output;
}

}  // namespace castor::attention
