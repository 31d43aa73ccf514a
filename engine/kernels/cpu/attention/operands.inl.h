// What the products of exact attention read: words of 32 bits, each a float, or two bfloat16 where
// the instruction set multiplies both at once. Everything is a template over the vector type, for
// the reason given in flash.inl.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/clustered/products.inl.h"
#include "engine/kernels/cpu/rows.inl.h"

namespace castor::kernels {

// Elements of type E, a float each.
template <typename V, typename E>
struct FloatOperands {
  using Bits = typename E::Bits;
  using Products = kernels::Products<V>;
  static constexpr int64_t kInWord = 1;

  static void LoadKey(const Bits* row, int64_t dim, float* words) {
    LoadRow<V, E>(row, dim, words);
  }
  static void LoadValues(const Bits* row, const Bits*, int64_t dim, float* words) {
    LoadRow<V, E>(row, dim, words);
  }
  template <int N>
  static void Pack(int64_t, float*) {}
};

// bfloat16, two adjacent ones of a lane. Products of queries and keys are those of float32, where
// they are exact; weights become bfloat16 themselves.
template <typename V>
struct PairOperands {
  using Vec = typename V::Vec;
  using Products = kernels::Products<V, PairOperands>;
  static constexpr int64_t kInWord = 2;

  static Vec MultiplyAdd(Vec a, Vec b, Vec c) { return V::MultiplyAddPairs(a, b, c); }

  static void LoadKey(const uint16_t* row, int64_t dim, float* words) {
    if (dim % 2 != 0) words[dim / 2] = 0;
    std::memcpy(words, row, dim * sizeof(*row));
  }
  // A word for each column, of a row and the next one; nullptr: zeros.
  static void LoadValues(const uint16_t* row, const uint16_t* next, int64_t dim, float* words) {
    ForColumns<V>(dim, [&](int64_t e, int64_t count) {
      const Vec second = next == nullptr ? V::Zero() : Rows::Load(next + e, count);
      Elements<V, Float32>::Store(words + e, V::PairOf(Rows::Load(row + e, count), second), count);
    });
  }
  // Floats [count, N lanes] become words [count / 2, N lanes].
  template <int N>
  static void Pack(int64_t count, float* rows) {
    for (int64_t i = 0; i < count; i += 2) {
      for (int v = 0; v < N; ++v) {
        const float* const row = rows + (i * N + v) * V::kLanes;
        const Vec second = i + 1 < count ? V::Load(row + N * V::kLanes) : V::Zero();
        V::Store(rows + (i / 2 * N + v) * V::kLanes, V::PairOf(V::Load(row), second));
      }
    }
  }

 private:
  using Rows = Elements<V, BFloat16>;
};

template <typename V, typename E, bool pairs = V::kHasPairs>
struct OperandsOf {
  using Type = FloatOperands<V, E>;
};
template <typename V>
struct OperandsOf<V, BFloat16, true> {
  using Type = PairOperands<V>;
};
template <typename V, typename E>
using Operands = typename OperandsOf<V, E>::Type;

}  // namespace castor::kernels
