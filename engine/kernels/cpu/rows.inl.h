// Rows of tokens as float32 vectors, one row at a time. Everything is a template over the vector
// type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/elements.inl.h"

namespace castor::kernels {

// Calls f(e, count) for the vectors of a row: `count` elements, from element e on.
template <typename V, typename F>
void ForColumns(int64_t dim, F f) {
  for (int64_t e = 0; e < dim; e += V::kLanes) {
    f(e, dim - e < V::kLanes ? dim - e : int64_t{V::kLanes});
  }
}

// Prefetch a row that will be read later, so that it arrives during other work: the rows of one
// head lie too far apart for the processor's own prefetcher. Far: into the second-level cache.
template <typename V, typename T>
void PrefetchRow(const T* row, int64_t dim) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t e = 0; e < dim; e += kLine) __builtin_prefetch(row + e, 0, 3);
}
template <typename V, typename T>
void PrefetchRowFar(const T* row, int64_t dim) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t e = 0; e < dim; e += kLine) __builtin_prefetch(row + e, 0, 2);
}

template <typename V, typename E>
void LoadRow(const typename E::Bits* row, int64_t dim, float* out) {
  ForColumns<V>(dim, [&](int64_t e, int64_t count) {
    Elements<V, Float32>::Store(out + e, Elements<V, E>::Load(row + e, count), count);
  });
}

template <typename V, typename E>
void StoreRow(const float* row, int64_t dim, typename E::Bits* out) {
  ForColumns<V>(dim, [&](int64_t e, int64_t count) {
    Elements<V, E>::Store(out + e, Elements<V, Float32>::Load(row + e, count), count);
  });
}

// sum[e] += factor * row[e].
template <typename V, typename E>
void AddRow(float factor, const typename E::Bits* row, int64_t dim, float* sum) {
  const auto factors = V::Broadcast(factor);
  ForColumns<V>(dim, [&](int64_t e, int64_t count) {
    Elements<V, Float32>::Store(sum + e,
                                V::MultiplyAdd(factors, Elements<V, E>::Load(row + e, count),
                                               Elements<V, Float32>::Load(sum + e, count)),
                                count);
  });
}

// The products of two rows' elements, each lane's in a sum of its own.
template <typename V>
typename V::Vec MultiplyRows(const float* a, const float* b, int64_t dim) {
  auto sums = V::Zero();
  ForColumns<V>(dim, [&](int64_t e, int64_t count) {
    sums = V::MultiplyAdd(Elements<V, Float32>::Load(a + e, count),
                          Elements<V, Float32>::Load(b + e, count), sums);
  });
  return sums;
}

}  // namespace castor::kernels
