// The exact part of improved clustered attention (section 3.3): each member of a cluster
// distributes the mass of the top keys by its own scores. Or it weighs the other keys by its own
// score too, as one key more. A part of centroids.inl.h.
//
// Top keys and values are gathered once per cluster. Lanes hold keys for the scores and value
// columns for the sums, and members are only broadcast, so clusters of any size fill the vectors. A
// template over the vector type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/attention/softmax.inl.h"
#include "engine/kernels/cpu/clustered/clusters.h"
#include "engine/kernels/cpu/clustered/products.inl.h"
#include "engine/kernels/cpu/clustered/top_keys.inl.h"
#include "engine/kernels/cpu/elements.inl.h"
#include "engine/kernels/cpu/linear/panels.inl.h"
#include "engine/kernels/cpu/rows.inl.h"
#include "engine/kernels/cpu/scratch.inl.h"

namespace castor::kernels {

template <typename V>
class Refine {
 public:
  static constexpr int64_t kMembers = 48;  // at a time: a multiple of kLanes

  static int64_t ScratchFloats(const CentroidShape& shape) {
    return Scratch(nullptr, shape).floats.value();
  }

  // The rest of a cluster, the keys that are no top keys, as far as its members share it.
  struct Rest {
    const float*
        row;     // [value_dim]: what they add to each member's row; with `key` their mean value
    float mass;  // of the top keys; with `key`, the others' sum of weights 2^(.. - maximum)
    const float* key = nullptr;  // [head_dim]: their mean key, if members have masses of their own
    float score = 0;             // what a member's score with it begins from
  };

  Refine(const CentroidShape& shape, const CentroidTile& tile, const SoftmaxScale<V>& softmax,
         float* scratch)
      : shape_(shape), tile_(tile), softmax_(softmax), scratch_(scratch, shape) {}

  // Prefetches the rows that Run will gather. Into the first-level cache only if rows lie side by
  // side: the rows of one head are usually a power of two apart, and would share few of its sets.
  template <typename E>
  void Prefetch(const uint64_t* entries, int64_t count) const {
    const auto* key = static_cast<const typename E::Bits*>(tile_.key);
    const auto* value = static_cast<const typename E::Bits*>(tile_.value);
    const bool near = tile_.key_stride == shape_.head_dim;
    for (int64_t n = 0; n < count; ++n) {
      const int64_t j = TopKeys<V>::KeyOf(entries[n]);
      if (near) {
        PrefetchRow<V>(key + j * tile_.key_stride, shape_.head_dim);
        PrefetchRow<V>(value + j * tile_.value_stride, shape_.value_dim);
      } else {
        PrefetchRowFar<V>(key + j * tile_.key_stride, shape_.head_dim);
        PrefetchRowFar<V>(value + j * tile_.value_stride, shape_.value_dim);
      }
    }
  }

  // Writes the rows of members [from, to) of cluster c: the rest, and their own weights on the
  // `count` keys of `entries`. E: elements of queries and rows; K: of the tile's keys and values.
  template <typename E, typename K>
  void Run(int64_t c, int64_t from, int64_t to, const uint64_t* entries, int64_t count,
           const Rest& rest) {
    entries_ = entries;
    count_ = count;
    padded_ = Panels::RoundUp(count);
    GatherKeys<K>(entries);
    GatherValues<K>(entries);
    const int64_t begin = tile_.begin[c] + from;
    const int64_t end = tile_.begin[c] + to;
    const int64_t last = tile_.begin[tile_.clusters];
    for (int64_t at = begin; at < end; at += kMembers) {
      const int64_t members = end - at < kMembers ? end - at : kMembers;
      LoadMembers<E>(tile_.order + at, members);
      Weights(tile_.order + at, members, rest, [&](int64_t i) {
        const int64_t next = i + members < last - at ? i + members : i;
        PrefetchRow<V>(Row<E>(tile_.query, tile_.order[at + next], tile_.query_stride),
                       shape_.head_dim);
        PrefetchRow<V>(Row<E>(tile_.output, tile_.order[at + i], tile_.output_stride),
                       shape_.value_dim);
      });
      StoreRows<E>(tile_.order + at, members, rest);
    }
  }

 private:
  using Vec = typename V::Vec;
  static constexpr int64_t kLanes = V::kLanes;
  using Panels = kernels::Panels<V>;

  struct Scratch : ScratchArea<V> {
    Scratch(float* base, const CentroidShape& shape) : ScratchArea<V>(base) {
      const int64_t keys_padded = Panels::RoundUp(shape.topk);
      keys = this->Allocate(Count(keys_padded) * shape.head_dim);
      values = this->Allocate(Count(keys_padded) * Count(shape.value_dim).RoundedUp(kLanes));
      members = this->Allocate(Count(kMembers) * shape.head_dim);
      scores = this->Allocate(kMembers * keys_padded);
      weights = this->Allocate(kMembers * keys_padded);
      factors = this->Allocate(kMembers);
      rests = this->Allocate(kMembers);
      outputs = this->Allocate(kMembers * Panels::kMaxWidth);
    }

    float* keys;     // panel after panel: [head_dim, W], times the factor
    float* values;   // panel after panel: [padded keys, W], zeros beyond the keys and columns
    float* members;  // [members, head_dim]
    float* scores;   // panel after panel: [members, W]
    float* weights;  // [members, padded keys], not yet divided by their sums
    float* factors;  // [members]: the mass divided by a member's sum
    float* rests;    // [members]: the rest's weight, if it is a member's own
    float* outputs;  // [members, W]
  };

  template <typename E>
  void GatherKeys(const uint64_t* entries) {
    const auto* key = static_cast<const typename E::Bits*>(tile_.key);
    Panels::For(count_, [&](auto vectors, int64_t lane) {
      Panels::template Load<decltype(vectors)::N, E>(
          [&](int64_t i) { return key + TopKeys<V>::KeyOf(entries[lane + i]) * tile_.key_stride; },
          count_ - lane, shape_.head_dim, softmax_.factor, scratch_.keys + lane * shape_.head_dim);
    });
  }

  template <typename E>
  void GatherValues(const uint64_t* entries) {
    const auto* value = static_cast<const typename E::Bits*>(tile_.value);
    const int64_t dim = shape_.value_dim;
    Panels::For(dim, [&](auto vectors, int64_t first) {
      constexpr int64_t kWidth = decltype(vectors)::N * kLanes;
      float* const panel = scratch_.values + first * padded_;
      for (int64_t n = 0; n < count_; ++n) {
        const auto* row = value + TopKeys<V>::KeyOf(entries[n]) * tile_.value_stride;
        for (int64_t e = first; e < first + kWidth; e += kLanes) {
          const int64_t columns = dim - e < kLanes ? dim - e : kLanes;
          V::Store(panel + n * kWidth + (e - first), Elements<V, E>::Load(row + e, columns));
        }
      }
      if (count_ == padded_) return;
      std::memset(panel + count_ * kWidth, 0, (padded_ - count_) * kWidth * sizeof(float));
    });
  }

  template <typename E>
  static const typename E::Bits* Row(const void* rows, int64_t token, int64_t stride) {
    return static_cast<const typename E::Bits*>(rows) + token * stride;
  }

  template <typename E>
  void LoadMembers(const int32_t* order, int64_t members) {
    for (int64_t i = 0; i < members; ++i) {
      LoadRow<V, E>(Row<E>(tile_.query, order[i], tile_.query_stride), shape_.head_dim,
                    scratch_.members + i * shape_.head_dim);
    }
  }

  // Each member's exponentials over the keys, the factors for them, and the log-sum-exp of those
  // with masses of their own. Calls prefetch(i) for each member, to prefetch rows while there is
  // other work.
  template <typename PrefetchMember>
  void Weights(const int32_t* order, int64_t members, const Rest& rest, PrefetchMember prefetch) {
    Panels::For(count_, [&](auto vectors, int64_t first) {
      constexpr int64_t kWidth = decltype(vectors)::N * kLanes;
      float* const scores = scratch_.scores + first * members;
      Products<V>::template Scores<decltype(vectors)::N>(scratch_.keys + first * shape_.head_dim,
                                                         scratch_.members, shape_.head_dim, members,
                                                         scores);
      if (shape_.biased) AddBiases(entries_ + first, count_ - first, kWidth, members, scores);
      // Lanes without a key: the last ones of the last panel.
      for (int64_t i = 0; first + kWidth > count_ && i < members; ++i) {
        for (int64_t n = count_; n < first + kWidth; ++n) {
          scores[i * kWidth + n - first] = -__builtin_inff();
        }
      }
    });
    const Vec scale = V::Broadcast(softmax_.exponent_scale);
    const Vec one = V::Broadcast(1);
    for (int64_t at = 0; at < members; at += kLanes) {
      const int64_t rows = members - at < kLanes ? members - at : kLanes;
      // Reductions across lanes, for as many members at once as there are lanes.
      Vec partial[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) partial[i] = V::Broadcast(-kLargestFloat);
      Panels::For(count_, [&](auto vectors, int64_t first) {
        constexpr int64_t kWidth = decltype(vectors)::N * kLanes;
        for (int64_t i = 0; i < rows; ++i) {
          const float* const row = scratch_.scores + first * members + (at + i) * kWidth;
          for (int64_t n = 0; n < kWidth; n += kLanes) {
            partial[i] = V::Max(V::Load(row + n), partial[i]);
          }
        }
      });
      V::Transpose(partial);
      Vec maximum = partial[0];
      for (int64_t i = 1; i < kLanes; ++i) maximum = V::Max(partial[i], maximum);
      Vec own = V::Zero();
      if (rest.key != nullptr) {
        own = RestScores(rest, at, rows);
        maximum = V::Max(own, maximum);
      }
      float maxima[kLanes];
      V::Store(maxima, maximum);

      for (int64_t i = 0; i < rows; ++i) prefetch(at + i);
      for (int64_t i = 0; i < kLanes; ++i) partial[i] = V::Zero();
      Panels::For(count_, [&](auto vectors, int64_t first) {
        constexpr int64_t kWidth = decltype(vectors)::N * kLanes;
        for (int64_t i = 0; i < rows; ++i) {
          const float* const row = scratch_.scores + first * members + (at + i) * kWidth;
          float* const weights = scratch_.weights + (at + i) * padded_ + first;
          const Vec greatest = V::Broadcast(maxima[i]);
          for (int64_t n = 0; n < kWidth; n += kLanes) {
            const Vec weight = Exp2<V>((V::Load(row + n) - greatest) * scale);
            V::Store(weights + n, weight);
            partial[i] += weight;
          }
        }
      });
      V::Transpose(partial);
      Vec sum = partial[0];
      for (int64_t i = 1; i < kLanes; ++i) sum = sum + partial[i];
      if (rest.key == nullptr) {
        V::Store(scratch_.factors + at, V::Broadcast(rest.mass) / V::Max(one, sum));
        continue;
      }
      const Vec weight = V::Broadcast(rest.mass) * Exp2<V>((own - maximum) * scale);
      sum += weight;
      const Vec divisor = V::Max(one, sum);  // of sums of no key, which are 0; others are no less
      V::Store(scratch_.factors + at, one / divisor);
      V::Store(scratch_.rests + at, weight / divisor);
      if (tile_.log_sum_exp == nullptr) continue;
      float logs[kLanes];
      V::Store(logs, sum);
      for (int64_t i = 0; i < kLanes; ++i) logs[i] = softmax_.LogSum(maxima[i], logs[i]);
      for (int64_t i = 0; i < rows; ++i) {
        tile_.log_sum_exp[order[at + i] * tile_.log_sum_exp_stride] = logs[i];
      }
    }
  }

  // Adds the keys' own biases to the scores [members, width] of a panel.
  void AddBiases(const uint64_t* entries, int64_t count, int64_t width, int64_t members,
                 float* scores) const {
    float biases[Panels::kMaxWidth] = {};
    for (int64_t n = 0; n < count && n < width; ++n) {
      const int64_t at = TopKeys<V>::KeyOf(entries[n]) * tile_.key_bias_stride;
      biases[n] = static_cast<float>(static_cast<double>(tile_.key_bias[at]) / softmax_.magnitude);
    }
    for (int64_t i = 0; i < members; ++i) {
      for (int64_t n = 0; n < width; n += kLanes) {
        float* const score = scores + i * width + n;
        V::Store(score, V::Load(score) + V::Load(biases + n));
      }
    }
  }

  // The scores of `rows` members from `at` on with the rest's mean key.
  Vec RestScores(const Rest& rest, int64_t at, int64_t rows) const {
    Vec partial[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      const float* const member = scratch_.members + (at + i) * shape_.head_dim;
      partial[i] = i < rows ? MultiplyRows<V>(member, rest.key, shape_.head_dim) : V::Zero();
    }
    V::Transpose(partial);
    Vec product = partial[0];
    for (int64_t i = 1; i < kLanes; ++i) product = product + partial[i];
    return V::MultiplyAdd(V::Broadcast(softmax_.factor), product, V::Broadcast(rest.score));
  }

  template <typename E>
  void StoreRows(const int32_t* order, int64_t members, const Rest& rest) {
    auto* const output = static_cast<typename E::Bits*>(tile_.output);
    const int64_t dim = shape_.value_dim;
    Panels::For(dim, [&](auto vectors, int64_t first) {
      constexpr int64_t kWidth = decltype(vectors)::N * kLanes;
      Products<V>::template Scores<decltype(vectors)::N>(
          scratch_.values + first * padded_, scratch_.weights, padded_, members, scratch_.outputs);
      for (int64_t i = 0; i < members; ++i) {
        const Vec factor = V::Broadcast(scratch_.factors[i]);
        for (int64_t e = first; e < first + kWidth && e < dim; e += kLanes) {
          const int64_t columns = dim - e < kLanes ? dim - e : kLanes;
          Vec others = Elements<V, Float32>::Load(rest.row + e, columns);
          if (rest.key != nullptr) {
            others = V::Broadcast(scratch_.rests[i]) * others;
          }
          const Vec row =
              V::MultiplyAdd(factor, V::Load(scratch_.outputs + i * kWidth + e - first), others);
          Elements<V, E>::Store(output + order[i] * tile_.output_stride + e, row, columns);
        }
      }
    });
  }

  const CentroidShape& shape_;
  const CentroidTile& tile_;
  const SoftmaxScale<V>& softmax_;
  Scratch scratch_;
  const uint64_t* entries_ = nullptr;  // [count_]
  int64_t count_ = 0;                  // top keys
  int64_t padded_ = 0;                 // to whole vectors
};

}  // namespace castor::kernels
