#include "engine/attention/vanilla_reference.h"

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

// `count` tokens from the first on, as doubles, without the gaps between tokens: [count, row].
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

}  // namespace

std::vector<double> VanillaReference(const Spec& spec, const Problem& problem) {
  const bool causal = std::get<Vanilla>(spec.kernel).causal;
  const int64_t heads = spec.heads;
  const int64_t d = spec.head_dim;
  const int64_t d_v = spec.value_dim;
  const auto doubles = [&](const std::byte* data, int64_t tokens, int64_t stride, int64_t dim) {
    return Doubles(spec.dtype, data, tokens, stride, heads * dim);
  };
  const int64_t key_tokens = problem.key_tokens();
  const auto query = doubles(problem.query, problem.query_tokens(), problem.query_stride, d);
  const auto key = doubles(problem.key, key_tokens, problem.key_stride, d);
  const auto value = doubles(problem.value, key_tokens, problem.value_stride, d_v);
  std::vector<double> output(problem.query_tokens() * heads * d_v);

  for (int64_t s = 0; s < problem.sequences(); ++s) {
    const int64_t key_begin = problem.cu_seqlens_k[s];
    const int64_t keys = problem.cu_seqlens_k[s + 1] - key_begin;
    for (int64_t i = problem.cu_seqlens_q[s]; i < problem.cu_seqlens_q[s + 1]; ++i) {
      const int64_t seen = causal ? i - problem.cu_seqlens_q[s] + 1 : keys;
      for (int64_t h = 0; h < heads; ++h) {
        std::vector<double> weights(seen);
        for (int64_t j = 0; j < seen; ++j) {
          weights[j] = spec.softmax_scale *
                       Dot(&query[(i * heads + h) * d], &key[((key_begin + j) * heads + h) * d], d);
        }
        const double maximum = *std::max_element(weights.begin(), weights.end());
        double sum = 0;
        for (double& weight : weights) sum += weight = std::exp(weight - maximum);
        double* const out = &output[(i * heads + h) * d_v];
        for (int64_t j = 0; j < seen; ++j) {
          const double* const v = &value[((key_begin + j) * heads + h) * d_v];
          for (int64_t e = 0; e < d_v; ++e) out[e] += weights[j] / sum * v[e];
        }
      }
    }
  }
  return output;
}

}  // namespace castor::attention
