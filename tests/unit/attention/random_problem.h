// Random ragged attention problems for tests, in any dtype, that own their memory.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "engine/attention/problem.h"

namespace castor::attention {

// A seed that differs from run to run; tests print it when they fail.
inline uint32_t FreshSeed() { return std::random_device{}(); }

// The nearest float16 and bfloat16, ties to even, straight from the definitions of the formats.
inline uint16_t NearestHalf(double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7e00;
  const double magnitude = std::abs(x);
  if (magnitude >= 65520) return sign | 0x7c00;
  int exponent;
  std::frexp(magnitude, &exponent);                // magnitude < 2^exponent
  const int place = std::max(exponent - 11, -24);  // of the last bit
  const double units = std::nearbyint(std::ldexp(magnitude, -place));
  const double rounded = std::ldexp(units, place);
  if (rounded < 0x1p-14) return sign | static_cast<uint16_t>(std::ldexp(rounded, 24));
  std::frexp(rounded, &exponent);
  const auto fraction = static_cast<uint16_t>(std::ldexp(rounded, 11 - exponent));  // 1024..2047
  return sign | static_cast<uint16_t>(((exponent + 14) << 10) | (fraction - 1024));
}

inline uint16_t NearestBrain(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  const uint32_t below = bits & 0xffff;
  const uint32_t up = below > 0x8000 || (below == 0x8000 && (bits & 0x10000) != 0);
  return static_cast<uint16_t>((bits >> 16) + up);
}

// Elements of one dtype behind bytes.
class Elements {
 public:
  Elements(DType dtype, int64_t count) : dtype_(dtype), bytes_(count * SizeOf(dtype)) {}

  void Set(int64_t index, double x) {
    if (dtype_ == DType::kFloat32) {
      const auto element = static_cast<float>(x);
      std::memcpy(bytes_.data() + 4 * index, &element, 4);
      return;
    }
    const uint16_t bits =
        dtype_ == DType::kFloat16 ? NearestHalf(x) : NearestBrain(static_cast<float>(x));
    std::memcpy(bytes_.data() + 2 * index, &bits, 2);
  }

  double Get(int64_t index) const {
    if (dtype_ == DType::kFloat32) {
      float element;
      std::memcpy(&element, bytes_.data() + 4 * index, 4);
      return element;
    }
    uint16_t bits;
    std::memcpy(&bits, bytes_.data() + 2 * index, 2);
    if (dtype_ == DType::kBFloat16) return std::bit_cast<float>(uint32_t{bits} << 16);
    const int exponent = (bits >> 10) & 31;
    const int fraction = bits & 1023;
    double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) magnitude = fraction == 0 ? INFINITY : NAN;
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  }

  int64_t size() const { return static_cast<int64_t>(bytes_.size() / SizeOf(dtype_)); }
  std::byte* data() { return bytes_.data(); }
  const std::byte* data() const { return bytes_.data(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

// Tokens further apart than their heads need, by so many elements.
struct Gaps {
  int64_t query = 0;
  int64_t key = 0;
  int64_t value = 0;
  int64_t output = 0;
};

// A problem with its memory. Not copyable: Problem points into it.
class OwnedProblem {
 public:
  OwnedProblem(const Spec& spec, std::vector<int32_t> query_lengths,
               std::vector<int32_t> key_lengths, const Gaps& gaps = {})
      : spec(spec),
        cu_seqlens_q(Offsets(query_lengths)),
        cu_seqlens_k(Offsets(key_lengths)),
        query(spec.dtype, cu_seqlens_q.back() * (spec.heads * spec.head_dim + gaps.query)),
        key(spec.dtype, cu_seqlens_k.back() * (spec.heads * spec.head_dim + gaps.key)),
        value(spec.dtype, cu_seqlens_k.back() * (spec.heads * spec.value_dim + gaps.value)),
        output(spec.dtype, cu_seqlens_q.back() * (spec.heads * spec.value_dim + gaps.output)) {
    view.query = query.data();
    view.key = key.data();
    view.value = value.data();
    view.output = output.data();
    view.query_stride = spec.heads * spec.head_dim + gaps.query;
    view.key_stride = spec.heads * spec.head_dim + gaps.key;
    view.value_stride = spec.heads * spec.value_dim + gaps.value;
    view.output_stride = spec.heads * spec.value_dim + gaps.output;
    view.cu_seqlens_q = cu_seqlens_q;
    view.cu_seqlens_k = cu_seqlens_k;
  }
  OwnedProblem(const OwnedProblem&) = delete;
  OwnedProblem& operator=(const OwnedProblem&) = delete;

  // Queries, keys and values from N(0, 1) times the given factors; gaps too.
  void Randomize(std::mt19937& random, double query_factor = 1, double key_factor = 1,
                 double value_factor = 1) {
    Fill(query, random, query_factor);
    Fill(key, random, key_factor);
    Fill(value, random, value_factor);
  }

  // One output element, by token over all sequences.
  double Output(int64_t token, int64_t head, int64_t e) const {
    return output.Get(token * view.output_stride + head * spec.value_dim + e);
  }

  Spec spec;
  std::vector<int32_t> cu_seqlens_q;
  std::vector<int32_t> cu_seqlens_k;
  Elements query;
  Elements key;
  Elements value;
  Elements output;
  Problem view;

 private:
  static std::vector<int32_t> Offsets(const std::vector<int32_t>& lengths) {
    std::vector<int32_t> offsets = {0};
    for (int32_t length : lengths) offsets.push_back(offsets.back() + length);
    return offsets;
  }

  static void Fill(Elements& elements, std::mt19937& random, double factor) {
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < elements.size(); ++i) elements.Set(i, factor * normal(random));
  }
};

// ||output - expected||_2 / ||expected||_2; infinite where one of them is not finite.
inline double RelativeError(const OwnedProblem& problem, const std::vector<double>& expected) {
  double error = 0;
  double norm = 0;
  int64_t i = 0;
  for (int64_t token = 0; token < problem.view.query_tokens(); ++token) {
    for (int64_t head = 0; head < problem.spec.heads; ++head) {
      for (int64_t e = 0; e < problem.spec.value_dim; ++e, ++i) {
        const double difference = problem.Output(token, head, e) - expected[i];
        error += difference * difference;
        norm += expected[i] * expected[i];
      }
    }
  }
  const double relative = norm == 0 ? error : std::sqrt(error / norm);
  return std::isfinite(relative) ? relative : INFINITY;
}

// The tolerances of the service's contract.
inline double Tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 2e-3;
    case DType::kBFloat16:
      return 1.5e-2;
    default:
      return 1e-5;
  }
}

}  // namespace castor::attention
