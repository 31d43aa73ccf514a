#include "engine/attention/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace castor::attention {
namespace {

double HalfToDouble(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double magnitude;
  if (exponent == 31) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

double ElementAt(DType dtype, const std::byte* data, int64_t index) {
  if (dtype == DType::kFloat32) {
    float element;
    std::memcpy(&element, data + 4 * index, sizeof(element));
    return element;
  }
  uint16_t bits;
  std::memcpy(&bits, data + 2 * index, sizeof(bits));
  if (dtype == DType::kFloat16) return HalfToDouble(bits);
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

}  // namespace

std::vector<double> Doubles(DType dtype, const std::byte* data, int64_t count, int64_t stride,
                            int64_t row) {
  std::vector<double> doubles;
  doubles.reserve(count * row);
  for (int64_t token = 0; token < count; ++token) {
    for (int64_t i = 0; i < row; ++i) doubles.push_back(ElementAt(dtype, data, token * stride + i));
  }
  return doubles;
}

double Dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<double> Softmax(std::vector<double> scores) {
  const double maximum = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - maximum);
  for (double& score : scores) score /= sum;
  return scores;
}

ReferenceTensors::ReferenceTensors(const Spec& spec, const Problem& problem)
    : heads(spec.heads),
      head_dim(spec.head_dim),
      value_dim(spec.value_dim),
      queries(Doubles(spec.dtype, problem.query, problem.query_tokens(), problem.query_stride,
                      heads * head_dim)),
      keys(Doubles(spec.dtype, problem.key, problem.key_tokens(), problem.key_stride,
                   heads * head_dim)),
      values(Doubles(spec.dtype, problem.value, problem.key_tokens(), problem.value_stride,
                     heads * value_dim)) {}

const double* ReferenceTensors::query(int64_t token, int64_t head) const {
  return &queries[(token * heads + head) * head_dim];
}
const double* ReferenceTensors::key(int64_t token, int64_t head) const {
  return &keys[(token * heads + head) * head_dim];
}
const double* ReferenceTensors::value(int64_t token, int64_t head) const {
  return &values[(token * heads + head) * value_dim];
}

}  // namespace castor::attention
