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

}  // namespace

std::vector<double> VanillaReference(const Spec& spec, const Problem& problem) {
  const bool causal = std::get<Vanilla>(spec.kernel).causal;
  const int64_t d = spec.head_dim;
  const int64_t d_v = spec.value_dim;
  std::vector<double> output(problem.query_tokens() * spec.heads * d_v);
  const auto query = [&](int64_t token, int64_t head, int64_t e) {
    return ElementAt(spec.dtype, problem.query, token * problem.query_stride + head * d + e);
  };
  const auto key = [&](int64_t token, int64_t head, int64_t e) {
    return ElementAt(spec.dtype, problem.key, token * problem.key_stride + head * d + e);
  };
  const auto value = [&](int64_t token, int64_t head, int64_t e) {
    return ElementAt(spec.dtype, problem.value, token * problem.value_stride + head * d_v + e);
  };

  for (int64_t s = 0; s < problem.sequences(); ++s) {
    const int64_t query_begin = problem.cu_seqlens_q[s];
    const int64_t query_end = problem.cu_seqlens_q[s + 1];
    const int64_t key_begin = problem.cu_seqlens_k[s];
    const int64_t key_end = problem.cu_seqlens_k[s + 1];
    for (int64_t i = query_begin; i < query_end; ++i) {
      const int64_t seen = causal ? i - query_begin + 1 : key_end - key_begin;
      for (int64_t h = 0; h < spec.heads; ++h) {
        std::vector<double> weights(seen);
        for (int64_t j = 0; j < seen; ++j) {
          double product = 0;
          for (int64_t e = 0; e < d; ++e) product += query(i, h, e) * key(key_begin + j, h, e);
          weights[j] = spec.softmax_scale * product;
        }
        const double maximum = *std::max_element(weights.begin(), weights.end());
        double sum = 0;
        for (double& weight : weights) sum += weight = std::exp(weight - maximum);
        for (int64_t e = 0; e < d_v; ++e) {
          double mean = 0;
          for (int64_t j = 0; j < seen; ++j) mean += weights[j] * value(key_begin + j, h, e);
          output[(i * spec.heads + h) * d_v + e] = mean / sum;
        }
      }
    }
  }
  return output;
}

}  // namespace castor::attention
