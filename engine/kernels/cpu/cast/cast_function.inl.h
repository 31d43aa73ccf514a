// CAST's attention function f down the lanes of a panel, see cast.h: softmax or laplace. Everything
// is a template over the vector type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/attention/softmax.inl.h"

namespace castor::kernels {

// erfc(y) / 2 for y >= 0, with a relative error of some 1e-6: the Chebyshev fit of Numerical
// Recipes (Press et al., "erfcc"), t exp(-y^2 + P(t)) with t = 1 / (1 + y / 2).
template <typename V>
typename V::Vec HalfErfc(typename V::Vec y) {
  using Vec = typename V::Vec;
  constexpr float kCoefficients[10] = {-1.26551223f, 1.00002368f, 0.37409196f,  0.09678418f,
                                       -0.18628806f, 0.27886807f, -1.13520398f, 1.48851587f,
                                       -0.82215223f, 0.17087277f};
  const Vec one = V::Broadcast(1.0f);
  const Vec t = one / V::MultiplyAdd(V::Broadcast(0.5f), y, one);
  Vec p = V::Broadcast(kCoefficients[9]);
  for (int i = 8; i >= 0; --i) p = V::MultiplyAdd(p, t, V::Broadcast(kCoefficients[i]));
  const Vec exponent = V::MultiplyAdd(V::Zero() - y, y, p);
  const Vec half_t = V::Broadcast(0.5f) * t;
  return half_t * Exp2<V>(exponent * V::Broadcast(static_cast<float>(kLog2E)));
}

// (1 + erf((x - mean) / (deviation sqrt(2)))) / 2 with mean sqrt(1/2), deviation sqrt(1/(4 pi)), of
// MEGA (arXiv 2209.10655): argument z = x * kLaplaceScale + kLaplaceShift.
inline constexpr double kLaplaceScale = 2.5066282746310002;   // sqrt(2 pi)
inline constexpr float kLaplaceShift = -1.7724538509055161f;  // -sqrt(pi)

template <typename V>
typename V::Vec NormalDistribution(typename V::Vec z) {
  using Vec = typename V::Vec;
  const Vec tail = HalfErfc<V>(V::Max(z, V::Zero() - z));
  // 1 - tail from zero on, tail below; NaN from NaN.
  const Vec above = V::ZeroBelow(V::Broadcast(1.0f) - tail, z, V::Zero());
  return above + (tail - V::ZeroBelow(tail, z, V::Zero()));
}

// Scores [count, N lanes] become laplace weights; scales contain kLaplaceScale.
template <typename V, int N>
void LaplaceDown(float* scores, int64_t count, const typename V::Vec scales[N]) {
  const typename V::Vec shift = V::Broadcast(kLaplaceShift);
  for (int64_t j = 0; j < count; ++j) {
    for (int v = 0; v < N; ++v) {
      float* const score = scores + (j * N + v) * V::kLanes;
      V::Store(score, NormalDistribution<V>(V::MultiplyAdd(V::Load(score), scales[v], shift)));
    }
  }
}

}  // namespace castor::kernels
