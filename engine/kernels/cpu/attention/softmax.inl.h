// The softmax down the lanes of a panel, key after key: its exponential, its scale and the online
// step. Everything is a template over the vector type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>

namespace castor::kernels {

inline constexpr float kLargestFloat = 3.4028234663852886e38f;
inline constexpr float kLeastFloat = 0x1p-149f;
inline constexpr double kLog2E = 1.4426950408889634;

// 2^x for x <= 0, to one unit in the last place; 0 below 2^-126, NaN for NaN, 1 for 0.
template <typename V>
typename V::Vec Exp2(typename V::Vec x) {
  using Vec = typename V::Vec;
  constexpr float kCoefficients[5] = {0x1.62e42ap-1f, 0x1.ebf9bcp-3f, 0x1.c6b752p-5f,
                                      0x1.3cea88p-7f, 0x1.5bba14p-10f};
  // Added to x, the constant rounds it to an integer and leaves that, biased as exponents are, in
  // the low bits.
  const Vec magic = V::Broadcast(12582912.0f + 127.0f);
  const Vec shifted = x + magic;
  const Vec f = x - (shifted - magic);  // in [-1/2, 1/2]
  // Minimax for 2^f with the constant term held at 1.
  Vec y = V::Broadcast(kCoefficients[4]);
  for (int i = 3; i >= 0; --i) y = V::MultiplyAdd(y, f, V::Broadcast(kCoefficients[i]));
  y = V::MultiplyAdd(y, f, V::Broadcast(1.0f));
  return V::ZeroBelow(y * V::PowerOfTwo(shifted), x, V::Broadcast(-126.0f));
}

// tanh x, to a few units in the last place; NaN for NaN.
template <typename V>
typename V::Vec Tanh(typename V::Vec x) {
  using Vec = typename V::Vec;
  constexpr float kNear = 0.625f;
  constexpr float kFrom = 0x1.400002p-1f;  // the next float
  // Beyond it, tanh is 1. Of two operands, the second one's NaN stays.
  const Vec most = V::Broadcast(16.0f);
  x = V::Max(V::Zero() - most, V::Min(most, x));
  const Vec magnitude = V::Max(x, V::Zero() - x);
  // Near zero: x + x^3 P(x^2), by Cephes.
  constexpr float kCoefficients[5] = {-3.33332819422e-1f, 1.33314422036e-1f, -5.37397155531e-2f,
                                      2.06390887954e-2f, -5.70498872745e-3f};
  const Vec square = x * x;
  Vec series = V::Broadcast(kCoefficients[4]);
  for (int i = 3; i >= 0; --i) {
    series = V::MultiplyAdd(series, square, V::Broadcast(kCoefficients[i]));
  }
  const Vec near = V::MultiplyAdd(series * square, x, x);
  // Elsewhere: (1 - e) / (1 + e) with e = exp(-2 |x|), and the sign of x.
  const Vec e = Exp2<V>(magnitude * V::Broadcast(static_cast<float>(-2 * kLog2E)));
  const Vec one = V::Broadcast(1.0f);
  const Vec far = x * (one - e) / (magnitude * (one + e));
  return V::ZeroBelow(near, V::Zero() - magnitude, V::Broadcast(-kNear)) +
         V::ZeroBelow(far, magnitude, V::Broadcast(kFrom));
}

// Scores [count, N lanes] become cap * tanh(factor * score).
template <typename V, int N>
void CapScores(float factor, float cap, int64_t count, float* scores) {
  const typename V::Vec factors = V::Broadcast(factor);
  const typename V::Vec caps = V::Broadcast(cap);
  for (int64_t i = 0; i < count * N; ++i) {
    float* const score = scores + i * V::kLanes;
    V::Store(score, caps * Tanh<V>(V::Load(score) * factors));
  }
}

// Clamps a factor >= 0 to the positive finite floats, so that it can multiply 0 and -Inf (the score
// of hidden keys and the initial maximum). The least float in place of 0 changes no weight: no two
// scores are that far apart.
template <typename V>
float FiniteFactor(double factor) {
  if (factor < double{kLeastFloat}) return kLeastFloat;
  return factor > double{kLargestFloat} ? kLargestFloat : static_cast<float>(factor);
}

// The scale of a softmax as the kernels apply it: weights are 2^(exponent_scale (factor score -
// maximum)). Scores are compared unscaled, so a negative scale becomes a sign. With scale zero, all
// scores become zero.
//
// With biases, a magnitude below 1 is part of the factor. Biases are divided by the rest of the
// scale, which is at least 1, so no bias grows.
template <typename V>
struct SoftmaxScale {
  explicit SoftmaxScale(double scale, bool biased = false)
      : factor(scale < 0 ? -1.0f : (scale > 0 ? 1.0f : 0.0f)),
        exponent_scale(scale == 0 ? 1.0f : FiniteFactor<V>(__builtin_fabs(scale) * kLog2E)),
        magnitude(__builtin_fabs(scale)) {
    if (!biased || magnitude >= 1) return;
    factor = static_cast<float>(scale);
    exponent_scale = static_cast<float>(kLog2E);
    magnitude = 1;
  }

  float Weight(float score, float maximum) const {
    return __builtin_exp2f((score - maximum) * exponent_scale);
  }

  // The natural logarithm of the sum of the scaled scores' exponentials, given their maximum and
  // the sum of weights relative to it, which is at least 1, or 0 if nothing has a weight. It is
  // -Inf only in that case; otherwise a result beyond the floats becomes the nearest float. NaN for
  // NaN. It has no branches and calls, so that loops over lanes become vectors.
  float LogSum(float maximum, float sum) const {
    // sum = 2^exponent (1 + f) with 1 + f near 1, and ln(1 + f) = 2 artanh(f / (2 + f)).
    const auto bits = __builtin_bit_cast(int32_t, sum);
    const int32_t exponent = (bits - __builtin_bit_cast(int32_t, 0x1.6a09e6p-1f)) >> 23;
    const float f = __builtin_bit_cast(float, bits - exponent * (1 << 23)) - 1.0f;
    const float s = f / (2.0f + f);
    const float z = s * s;
    const float series = 1 + z * (1.0f / 3 + z * (1.0f / 5 + z * (1.0f / 7 + z * (1.0f / 9))));
    const float log = static_cast<float>(exponent) * 0x1.62e43p-1f + 2 * s * series + (sum - sum);
    const float none = __builtin_bit_cast(float, bits == 0 ? 0xff800000u : 0u);  // -Inf or 0
    double scaled = magnitude * double{maximum};
    scaled = scaled > double{kLargestFloat} ? double{kLargestFloat} : scaled;
    scaled = scaled < -double{kLargestFloat} ? -double{kLargestFloat} : scaled;
    return static_cast<float>(scaled + double{log + none});
  }

  float factor;  // of a product of query and key, for a score: -1, 0 or 1, or with biases less
  float exponent_scale;
  double magnitude;  // of the rest of the scale
};

// The greatest of scores [count, N lanes] and `maxima`. NaN is ignored.
template <typename V, int N>
void MaximaDown(const float* scores, int64_t count, typename V::Vec maxima[N]) {
  for (int64_t j = 0; j < count; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) {
      maxima[v] = V::Max(V::Load(scores + (j * N + v) * V::kLanes), maxima[v]);
    }
  }
}

// Scores [count, N lanes] become weights exp2(scale * (score - maximum)), whose sums are returned.
template <typename V, int N>
void WeightsDown(float* scores, int64_t count, const typename V::Vec scales[N],
                 const typename V::Vec maxima[N], typename V::Vec sums[N]) {
  for (int v = 0; v < N; ++v) sums[v] = V::Zero();
  for (int64_t j = 0; j < count; ++j) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) {
      float* const score = scores + (j * N + v) * V::kLanes;
      const typename V::Vec weight = Exp2<V>((V::Load(score) - maxima[v]) * scales[v]);
      V::Store(score, weight);
      sums[v] += weight;
    }
  }
}

// The online step: scores [count, N lanes] become weights, `maxima` and `sums` [N lanes] become
// those of all scores so far, and `decay` [N lanes] the factors for earlier sums.
template <typename V, int N>
void OnlineSoftmax(float* scores, int64_t count, float exponent_scale, float* maxima, float* sums,
                   float* decay) {
  using Vec = typename V::Vec;
  const Vec scale = V::Broadcast(exponent_scale);
  Vec scales[N];
  Vec maximum[N];
  Vec sum[N];
  for (int v = 0; v < N; ++v) scales[v] = scale;
  for (int v = 0; v < N; ++v) maximum[v] = V::Load(maxima + v * V::kLanes);
  MaximaDown<V, N>(scores, count, maximum);
  WeightsDown<V, N>(scores, count, scales, maximum, sum);
  for (int v = 0; v < N; ++v) {
    const int64_t at = v * V::kLanes;
    const Vec before = V::Load(maxima + at);
    const Vec kept = Exp2<V>((before - maximum[v]) * scale);
    V::Store(decay + at, kept);
    V::Store(maxima + at, maximum[v]);
    V::Store(sums + at, V::MultiplyAdd(V::Load(sums + at), kept, sum[v]));
  }
}

}  // namespace castor::kernels
