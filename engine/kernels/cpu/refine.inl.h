// The exact part of improved clustered attention (section 3.3): members of a cluster share out the
// mass of its top keys by their own scores. A part of centroids.inl.h.
//
// Top keys and values are gathered once per cluster. Lanes hold keys for the scores and value
// columns for the sums, so members are only broadcast: clusters of any size fill the vectors. A
// template over the vector type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/clusters.h"
#include "engine/kernels/cpu/elements.inl.h"
#include "engine/kernels/cpu/products.inl.h"
#include "engine/kernels/cpu/top_keys.inl.h"

namespace castor::kernels {

// The scale of a softmax as the kernels apply it: weights are 2^(exponent_scale (factor score -
// maximum)). Scores are compared unscaled, so a negative scale becomes a sign; with scale zero, all
// scores are.
template <typename V>
struct SoftmaxScale {
  explicit SoftmaxScale(double scale) {
    const double magnitude = scale < 0 ? -scale : scale;
    constexpr double kLog2E = 1.4426950408889634;
    constexpr double kLargest = 3.4028234663852886e38;
    const double exponent = magnitude * kLog2E;
    factor = scale < 0 ? -1.0f : (scale > 0 ? 1.0f : 0.0f);
    exponent_scale =
        scale == 0 ? 1.0f : static_cast<float>(exponent < kLargest ? exponent : kLargest);
  }

  float Weight(float score, float maximum) const {
    return __builtin_exp2f((score - maximum) * exponent_scale);
  }

  float factor;  // -1, 0 or 1
  float exponent_scale;
};

template <typename V, typename E>
void PrefetchRow(const typename E::Bits* row, int64_t dim) {
  constexpr int64_t kLine = 64 / sizeof(typename E::Bits);
  for (int64_t e = 0; e < dim; e += kLine) V::Prefetch(row + e);
}
template <typename V, typename E>
void PrefetchRowFar(const typename E::Bits* row, int64_t dim) {
  constexpr int64_t kLine = 64 / sizeof(typename E::Bits);
  for (int64_t e = 0; e < dim; e += kLine) V::PrefetchFar(row + e);
}

template <typename V>
class Refine {
 public:
  static int64_t ScratchFloats(const CentroidShape& shape) {
    return Scratch(nullptr, shape).floats;
  }

  Refine(const CentroidShape& shape, const CentroidTile& tile, const SoftmaxScale<V>& softmax,
         float* scratch)
      : shape_(shape), tile_(tile), softmax_(softmax), scratch_(scratch, shape) {}

  // Asks for the rows that Run will gather. Not into the first-level cache unless rows lie side by
  // side: those of one head are a power of two apart, more often than not, and so many of them
  // share few of its sets.
  template <typename E>
  void Prefetch(const uint64_t* entries, int64_t count) const {
    const auto* key = static_cast<const typename E::Bits*>(tile_.key);
    const auto* value = static_cast<const typename E::Bits*>(tile_.value);
    const bool near = tile_.key_stride == shape_.head_dim;
    for (int64_t n = 0; n < count; ++n) {
      const int64_t j = TopKeys<V>::KeyOf(entries[n]);
      if (near) {
        PrefetchRow<V, E>(key + j * tile_.key_stride, shape_.head_dim);
        PrefetchRow<V, E>(value + j * tile_.value_stride, shape_.value_dim);
      } else {
        PrefetchRowFar<V, E>(key + j * tile_.key_stride, shape_.head_dim);
        PrefetchRowFar<V, E>(value + j * tile_.value_stride, shape_.value_dim);
      }
    }
  }

  // Writes the rows of cluster c's members: `rest` [value_dim] and, by `mass`, their own weights on
  // the `count` keys of `entries`. E: elements of queries and rows; K: of the tile's keys and
  // values.
  template <typename E, typename K>
  void Run(int64_t c, const uint64_t* entries, int64_t count, float mass, const float* rest) {
    count_ = count;
    padded_ = (count + kLanes - 1) / kLanes * kLanes;
    GatherKeys<K>(entries);
    GatherValues<K>(entries);
    const int64_t begin = tile_.begin[c];
    const int64_t end = tile_.begin[c + 1];
    const int64_t last = tile_.begin[tile_.clusters];
    for (int64_t at = begin; at < end; at += kMembers) {
      const int64_t members = end - at < kMembers ? end - at : kMembers;
      LoadMembers<E>(tile_.order + at, members);
      Weights(members, mass, [&](int64_t i) {
        const int64_t next = i + members < last - at ? i + members : i;
        PrefetchRow<V, E>(Row<E>(tile_.query, tile_.order[at + next], tile_.query_stride),
                          shape_.head_dim);
        PrefetchRow<V, E>(Row<E>(tile_.output, tile_.order[at + i], tile_.output_stride),
                          shape_.value_dim);
      });
      StoreRows<E>(tile_.order + at, members, rest);
    }
  }

 private:
  using Vec = typename V::Vec;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kMaxVectors = 3;
  static constexpr int64_t kMaxWidth = kMaxVectors * kLanes;
  static constexpr int64_t kMembers = 48;  // at a time: a multiple of kLanes

  static int64_t RoundUp(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

  struct Scratch {
    Scratch(float* base, const CentroidShape& shape) {
      const int64_t keys_padded = RoundUp(shape.topk);
      keys = Take(base, keys_padded * shape.head_dim);
      values = Take(base, keys_padded * RoundUp(shape.value_dim));
      members = Take(base, kMembers * shape.head_dim);
      scores = Take(base, kMembers * keys_padded);
      weights = Take(base, kMembers * keys_padded);
      factors = Take(base, kMembers);
      outputs = Take(base, kMembers * kMaxWidth);
    }

    float* Take(float* base, int64_t count) {
      float* taken = base == nullptr ? nullptr : base + floats;
      floats += (count + 15) / 16 * 16;
      return taken;
    }

    int64_t floats = 0;
    float* keys;     // panel after panel: [head_dim, W], times the factor
    float* values;   // panel after panel: [padded keys, W], zeros beyond the keys and columns
    float* members;  // [members, head_dim]
    float* scores;   // panel after panel: [members, W]
    float* weights;  // [members, padded keys], not yet divided by their sums
    float* factors;  // [members]: the mass divided by a member's sum
    float* outputs;  // [members, W]
  };

  // Calls f(first lane, width) for the panels of `lanes` lanes, width a multiple of kLanes.
  template <typename F>
  static void ForPanels(int64_t lanes, F f) {
    const int64_t vectors = lanes / kLanes;
    const int64_t panels = (vectors + kMaxVectors - 1) / kMaxVectors;
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t first = vectors * p / panels * kLanes;
      f(first, vectors * (p + 1) / panels * kLanes - first);
    }
  }

  static void Multiply(const float* panel, int64_t width, const float* rows, int64_t dim,
                       int64_t count, float* products) {
    switch (width / kLanes) {
      case 1:
        return Products<V>::template Scores<1>(panel, rows, dim, count, products);
      case 2:
        return Products<V>::template Scores<2>(panel, rows, dim, count, products);
      case 3:
        return Products<V>::template Scores<3>(panel, rows, dim, count, products);
    }
  }

  template <typename E>
  void GatherKeys(const uint64_t* entries) {
    const auto* key = static_cast<const typename E::Bits*>(tile_.key);
    const Vec factor = V::Broadcast(softmax_.factor);
    const int64_t dim = shape_.head_dim;
    ForPanels(padded_, [&](int64_t first, int64_t width) {
      float* const panel = scratch_.keys + first * dim;
      for (int64_t lane = first; lane < first + width; lane += kLanes) {
        for (int64_t e = 0; e < dim; e += kLanes) {
          const int64_t columns = dim - e < kLanes ? dim - e : kLanes;
          Vec rows[kLanes];
          for (int64_t i = 0; i < kLanes; ++i) {
            rows[i] = V::Zero();
            if (lane + i >= count_) continue;
            const int64_t j = TopKeys<V>::KeyOf(entries[lane + i]);
            rows[i] =
                V::Multiply(factor, Elements<V, E>::Load(key + j * tile_.key_stride + e, columns));
          }
          V::Transpose(rows);
          for (int64_t i = 0; i < columns; ++i) {
            V::Store(panel + (e + i) * width + (lane - first), rows[i]);
          }
        }
      }
    });
  }

  template <typename E>
  void GatherValues(const uint64_t* entries) {
    const auto* value = static_cast<const typename E::Bits*>(tile_.value);
    const int64_t dim = shape_.value_dim;
    ForPanels(RoundUp(dim), [&](int64_t first, int64_t width) {
      float* const panel = scratch_.values + first * padded_;
      for (int64_t n = 0; n < count_; ++n) {
        const auto* row = value + TopKeys<V>::KeyOf(entries[n]) * tile_.value_stride;
        for (int64_t e = first; e < first + width; e += kLanes) {
          const int64_t columns = dim - e < kLanes ? dim - e : kLanes;
          V::Store(panel + n * width + (e - first), Elements<V, E>::Load(row + e, columns));
        }
      }
      if (count_ == padded_) return;
      std::memset(panel + count_ * width, 0, (padded_ - count_) * width * sizeof(float));
    });
  }

  template <typename E>
  static const typename E::Bits* Row(const void* rows, int64_t token, int64_t stride) {
    return static_cast<const typename E::Bits*>(rows) + token * stride;
  }

  template <typename E>
  void LoadMembers(const int32_t* order, int64_t members) {
    for (int64_t i = 0; i < members; ++i) {
      CopyRow<E>(Row<E>(tile_.query, order[i], tile_.query_stride),
                 scratch_.members + i * shape_.head_dim);
    }
  }

  template <typename E>
  void CopyRow(const typename E::Bits* row, float* to) const {
    for (int64_t e = 0; e < shape_.head_dim; e += kLanes) {
      const int64_t count = shape_.head_dim - e < kLanes ? shape_.head_dim - e : kLanes;
      Elements<V, Float32>::Store(to + e, Elements<V, E>::Load(row + e, count), count);
    }
  }

  // Each member's exponentials over the keys, and what they are to be multiplied by. Calls ask(i)
  // for each member on the way: to ask memory for rows while there is something else to do.
  template <typename Ask>
  void Weights(int64_t members, float mass, Ask ask) {
    ForPanels(padded_, [&](int64_t first, int64_t width) {
      float* const scores = scratch_.scores + first * members;
      Multiply(scratch_.keys + first * shape_.head_dim, width, scratch_.members, shape_.head_dim,
               members, scores);
      // Lanes without a key: the last ones of the last panel.
      for (int64_t i = 0; first + width > count_ && i < members; ++i) {
        for (int64_t n = count_; n < first + width; ++n) {
          scores[i * width + n - first] = -__builtin_inff();
        }
      }
    });
    const Vec scale = V::Broadcast(softmax_.exponent_scale);
    for (int64_t at = 0; at < members; at += kLanes) {
      const int64_t rows = members - at < kLanes ? members - at : kLanes;
      // Reductions across lanes, for as many members at once as there are lanes.
      Vec partial[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) partial[i] = V::Broadcast(-__builtin_inff());
      ForPanels(padded_, [&](int64_t first, int64_t width) {
        for (int64_t i = 0; i < rows; ++i) {
          const float* const row = scratch_.scores + first * members + (at + i) * width;
          for (int64_t n = 0; n < width; n += kLanes) {
            partial[i] = V::Max(V::Load(row + n), partial[i]);
          }
        }
      });
      V::Transpose(partial);
      Vec maximum = partial[0];
      for (int64_t i = 1; i < kLanes; ++i) maximum = V::Max(partial[i], maximum);
      float maxima[kLanes];
      V::Store(maxima, maximum);

      for (int64_t i = 0; i < rows; ++i) ask(at + i);
      for (int64_t i = 0; i < kLanes; ++i) partial[i] = V::Zero();
      ForPanels(padded_, [&](int64_t first, int64_t width) {
        for (int64_t i = 0; i < rows; ++i) {
          const float* const row = scratch_.scores + first * members + (at + i) * width;
          float* const weights = scratch_.weights + (at + i) * padded_ + first;
          const Vec greatest = V::Broadcast(maxima[i]);
          for (int64_t n = 0; n < width; n += kLanes) {
            const Vec weight = Exp2<V>(V::Multiply(V::Subtract(V::Load(row + n), greatest), scale));
            V::Store(weights + n, weight);
            partial[i] = V::Add(partial[i], weight);
          }
        }
      });
      V::Transpose(partial);
      Vec sum = partial[0];
      for (int64_t i = 1; i < kLanes; ++i) sum = V::Add(sum, partial[i]);
      V::Store(scratch_.factors + at, V::Divide(V::Broadcast(mass), sum));
    }
  }

  template <typename E>
  void StoreRows(const int32_t* order, int64_t members, const float* rest) {
    auto* const output = static_cast<typename E::Bits*>(tile_.output);
    const int64_t dim = shape_.value_dim;
    ForPanels(RoundUp(dim), [&](int64_t first, int64_t width) {
      Multiply(scratch_.values + first * padded_, width, scratch_.weights, padded_, members,
               scratch_.outputs);
      for (int64_t i = 0; i < members; ++i) {
        const Vec factor = V::Broadcast(scratch_.factors[i]);
        for (int64_t e = first; e < first + width && e < dim; e += kLanes) {
          const int64_t columns = dim - e < kLanes ? dim - e : kLanes;
          const Vec row = V::MultiplyAdd(factor, V::Load(scratch_.outputs + i * width + e - first),
                                         Elements<V, Float32>::Load(rest + e, columns));
          Elements<V, E>::Store(output + order[i] * tile_.output_stride + e, row, columns);
        }
      }
    });
  }

  const CentroidShape& shape_;
  const CentroidTile& tile_;
  const SoftmaxScale<V>& softmax_;
  Scratch scratch_;
  int64_t count_ = 0;   // top keys
  int64_t padded_ = 0;  // to whole vectors
};

}  // namespace castor::kernels
