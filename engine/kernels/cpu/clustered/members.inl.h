// Averages the members of a cluster into their centroid, the mean query, and writes the row that
// they share to each. Used by centroids.inl.h; a template over the vector type, for the reason
// given in flash.inl.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/clustered/clusters.h"
#include "engine/kernels/cpu/rows.inl.h"

namespace castor::kernels {

template <typename V>
class Members {
 public:
  Members(const CentroidShape& shape, const CentroidTile& tile) : shape_(shape), tile_(tile) {}

  // Members whose queries are summed up before the sum joins the total: part of the results'
  // definition.
  static constexpr int64_t kBlock = 64;

  // Adds members [from, to) of cluster c to its mean query: all of them in order, in ranges that
  // begin at multiples of kBlock. `block` [head_dim] is scratch memory.
  template <typename E>
  void Mean(int64_t c, int64_t from, int64_t to, float* mean, float* block) const {
    const auto* query = static_cast<const typename E::Bits*>(tile_.query);
    const int64_t dim = shape_.head_dim;
    const int64_t begin = tile_.begin[c];
    const int64_t end = begin + to;
    const int64_t last = tile_.begin[tile_.clusters] - 1;
    if (from == 0) std::memset(mean, 0, dim * sizeof(float));
    for (int64_t first = begin + from; first < end; first += kBlock) {
      const int64_t after = end - first < kBlock ? end : first + kBlock;
      std::memset(block, 0, dim * sizeof(float));
      for (int64_t i = first; i < after; ++i) {
        const int64_t next = i + kAhead < last ? i + kAhead : last;
        PrefetchRow<V>(query + tile_.order[next] * tile_.query_stride, dim);
        const auto* row = query + tile_.order[i] * tile_.query_stride;
        ForColumns<V>(dim, [&](int64_t e, int64_t count) {
          AddTo(block + e, Elements<V, E>::Load(row + e, count), count);
        });
      }
      ForColumns<V>(dim, [&](int64_t e, int64_t count) {
        AddTo(mean + e, Elements<V, Float32>::Load(block + e, count), count);
      });
    }
    if (end < tile_.begin[c + 1]) return;
    const Vec members = V::Broadcast(static_cast<float>(to));
    ForColumns<V>(dim, [&](int64_t e, int64_t count) {
      const Vec sum = Elements<V, Float32>::Load(mean + e, count);
      Elements<V, Float32>::Store(mean + e, sum / members, count);
    });
  }

  // Writes the row [value_dim] to members [from, to) of cluster c: all of them in order. The row is
  // overwritten.
  template <typename E>
  void WriteRow(int64_t c, int64_t from, int64_t to, float* row) const {
    using Element = typename E::Bits;
    auto* const output = static_cast<Element*>(tile_.output);
    const int64_t begin = tile_.begin[c] + from;
    const int64_t end = tile_.begin[c] + to;
    if constexpr (sizeof(Element) == sizeof(float)) {
      const int64_t last = tile_.begin[tile_.clusters] - 1;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t next = i + kAhead < last ? i + kAhead : last;
        PrefetchRow<V>(output + tile_.order[next] * tile_.output_stride, shape_.value_dim);
        StoreRow<V, E>(row, shape_.value_dim, output + tile_.order[i] * tile_.output_stride);
      }
    } else {
      // Rounds once, in place: the narrow elements fit before the floats that are yet to be read.
      auto* const elements = reinterpret_cast<Element*>(row);
      if (from == 0) StoreRow<V, E>(row, shape_.value_dim, elements);
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(output + tile_.order[i] * tile_.output_stride, elements,
                    shape_.value_dim * sizeof(Element));
      }
    }
  }

  // Writes the centroid's log-sum-exp to members [from, to) of cluster c.
  void WriteLog(int64_t c, int64_t from, int64_t to, float log_sum_exp) const {
    for (int64_t i = tile_.begin[c] + from; i < tile_.begin[c] + to; ++i) {
      tile_.log_sum_exp[tile_.order[i] * tile_.log_sum_exp_stride] = log_sum_exp;
    }
  }

 private:
  using Vec = typename V::Vec;

  static constexpr int64_t kAhead = 16;

  static void AddTo(float* sums, Vec x, int64_t count) {
    const Vec sum = Elements<V, Float32>::Load(sums, count);
    Elements<V, Float32>::Store(sums, sum + x, count);
  }

  const CentroidShape& shape_;
  const CentroidTile& tile_;
};

}  // namespace castor::kernels
