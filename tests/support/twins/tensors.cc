#include "tests/support/twins/tensors.h"

#include <algorithm>
#include <cmath>

#include "tests/support/attention/elements.h"

namespace castor::attention {

std::vector<double> Doubles(DType dtype, const std::byte* data, int64_t count, int64_t stride,
                            int64_t row) {
  std::vector<double> doubles;
  doubles.reserve(count * row);
  for (int64_t token = 0; token < count; ++token) {
    for (int64_t i = 0; i < row; ++i) {
      doubles.push_back(GetElement(data, dtype, token * stride + i));
    }
  }
  return doubles;
}

double Dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

double KeyBiasAt(const Spec& spec, const Problem& problem, int64_t token, int64_t head) {
  if (spec.key_bias_heads == 0) return 0;
  const int64_t column = spec.key_bias_heads == 1 ? 0 : head / spec.group();
  return problem.key_bias[token * spec.key_bias_heads + column];
}

std::vector<double> Softmax(std::vector<double> scores) {
  if (scores.empty()) return scores;
  const double maximum = *std::max_element(scores.begin(), scores.end());
  if (maximum == -INFINITY) return std::vector<double>(scores.size());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - maximum);
  for (double& score : scores) score /= sum;
  return scores;
}

double LogSumExp(const std::vector<double>& scores) {
  if (scores.empty()) return -INFINITY;
  const double maximum = *std::max_element(scores.begin(), scores.end());
  if (maximum == -INFINITY) return -INFINITY;
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - maximum);
  return maximum + std::log(sum);
}

ReferenceTensors::ReferenceTensors(const Spec& spec, const Problem& problem)
    : heads(spec.heads),
      kv_heads(spec.kv_heads),
      head_dim(spec.head_dim),
      value_dim(spec.value_dim),
      queries(Doubles(spec.dtype, problem.query, problem.query_tokens(), problem.query_stride,
                      heads * head_dim)),
      keys(Doubles(spec.dtype, problem.key, problem.key_tokens(), problem.key_stride,
                   kv_heads * head_dim)) {
  for (int64_t token = 0; token < problem.key_tokens(); ++token) {
    const int64_t first = token * problem.value_stride;
    for (int64_t head = 0; head < kv_heads; ++head) {
      for (int64_t e = 0; e < value_dim; ++e) {
        values.push_back(
            GetElement(problem.value, spec.dtype, first + head * problem.value_head_stride + e));
      }
    }
  }
}

const double* ReferenceTensors::query(int64_t token, int64_t head) const {
  return &queries[(token * heads + head) * head_dim];
}
const double* ReferenceTensors::key(int64_t token, int64_t head) const {
  return &keys[(token * kv_heads + head * kv_heads / heads) * head_dim];
}
const double* ReferenceTensors::value(int64_t token, int64_t head) const {
  return &values[(token * kv_heads + head * kv_heads / heads) * value_dim];
}

}  // namespace castor::attention
