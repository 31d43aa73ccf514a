// The exact part of improved clustered attention (section 3.3): each member of a cluster
// distributes the mass of the top keys by its own scores. Or it weighs the other keys by its own
// scores too, each group of them as one key more. A part of centroids.inl.h.
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

  // The rest of a cluster, the keys that are no top keys. Without groups, members share it: what it
  // adds to their rows, and the mass of the top keys. Otherwise each group's mean value, its sum of
  // weights 2^(.. - maximum), its mean key, and what a member's score with that begins from; arrays
  // have `stride` rows from one group to the next.
  struct Rest {
    const float* values;  // [value_dim]
    const float* masses;
    int64_t groups = 0;
    int64_t stride = 0;
    const float* keys = nullptr;  // [head_dim]
    const float* scores = nullptr;
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
      const int64_t j = KeyAt(entries[n]);
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
    count_ = count;
    lanes_ = rest.groups > 0 ? Panels::RoundUp(count) + rest.groups : count;
    padded_ = Panels::RoundUp(lanes_);
    GatherKeys<K>(entries, rest);
    GatherValues<K>(entries, rest);
    SetBiases(entries, rest);
    const int64_t begin = tile_.begin[c] + from;
    const int64_t end = tile_.begin[c] + to;
    const int64_t last = tile_.begin[tile_.clusters];
    for (int64_t at = begin; at < end; at += kMembers) {
      const int64_t members = end - at < kMembers ? end - at : kMembers;
      LoadMembers<E>(tile_.order + at, members);
      Weights(tile_.order + at, members, rest.groups > 0, *rest.masses, [&](int64_t i) {
        const int64_t next = i + members < last - at ? i + members : i;
        PrefetchRow<V>(Row<E>(tile_.query, tile_.order[at + next], tile_.query_stride),
                       shape_.head_dim);
        PrefetchRow<V>(Row<E>(tile_.output, tile_.order[at + i], tile_.output_stride),
                       shape_.value_dim);
      });
      StoreRows<E>(tile_.order + at, members, rest.groups > 0 ? nullptr : rest.values);
    }
  }

 private:
  using Vec = typename V::Vec;
  static constexpr int64_t kLanes = V::kLanes;
  using Panels = kernels::Panels<V>;

  struct Scratch : ScratchArea<V> {
    Scratch(float* base, const CentroidShape& shape) : ScratchArea<V>(base) {
      const int64_t keys_padded = Panels::RoundUp(shape.topk) + Panels::RoundUp(shape.groups);
      keys = this->Allocate(Count(keys_padded) * shape.head_dim);
      values = this->Allocate(Count(keys_padded) * Count(shape.value_dim).RoundedUp(kLanes));
      members = this->Allocate(Count(kMembers) * shape.head_dim);
      scores = this->Allocate(kMembers * keys_padded);
      weights = this->Allocate(kMembers * keys_padded);
      biases = this->Allocate(keys_padded);
      masses = this->Allocate(keys_padded);
      factors = this->Allocate(kMembers);
      outputs = this->Allocate(kMembers * Panels::kMaxWidth);
    }

    // Lanes are top keys, and from the next whole vector on groups.
    float* keys;     // panel after panel: [head_dim, W], times the factor
    float* values;   // panel after panel: [padded keys, W], zeros beyond the keys and columns
    float* members;  // [members, head_dim]
    float* scores;   // panel after panel: [members, W]
    float* weights;  // [members, padded keys], not yet divided by their sums
    float* biases;   // [padded keys] of the scores; of lanes without a key -Inf
    float* masses;   // [padded keys] by which weights are multiplied, with groups
    float* factors;  // [members]: the mass divided by a member's sum
    float* outputs;  // [members, W]
  };

  int64_t KeyAt(uint64_t entry) const { return tile_.Key(TopKeys<V>::KeyOf(entry)); }

  template <typename E>
  void GatherKeys(const uint64_t* entries, const Rest& rest) {
    const auto* key = static_cast<const typename E::Bits*>(tile_.key);
    const int64_t dim = shape_.head_dim;
    Panels::For(lanes_, [&](auto vectors, int64_t first) {
      constexpr int N = decltype(vectors)::N;
      for (int64_t lane = first; lane < first + N * kLanes; lane += kLanes) {
        float* const vector = scratch_.keys + first * dim + (lane - first);
        if (lane < count_) {
          Panels::template LoadVector<N, E>(
              [&](int64_t i) { return key + KeyAt(entries[lane + i]) * tile_.key_stride; },
              count_ - lane, dim, softmax_.factor, vector);
          continue;
        }
        const int64_t group = lane - Panels::RoundUp(count_);
        Panels::template LoadVector<N, Float32>(
            [&](int64_t i) { return rest.keys + (group + i) * rest.stride * dim; },
            rest.groups - group, dim, softmax_.factor, vector);
      }
    });
  }

  template <typename E>
  void GatherValues(const uint64_t* entries, const Rest& rest) {
    const auto* value = static_cast<const typename E::Bits*>(tile_.value);
    const int64_t dim = shape_.value_dim;
    Panels::For(dim, [&](auto vectors, int64_t first) {
      constexpr int64_t kWidth = decltype(vectors)::N * kLanes;
      float* const panel = scratch_.values + first * padded_;
      const auto store = [&]<typename F>(int64_t lane, const typename F::Bits* row, F) {
        for (int64_t e = first; e < first + kWidth; e += kLanes) {
          const int64_t columns = dim - e < kLanes ? dim - e : kLanes;
          V::Store(panel + lane * kWidth + (e - first), Elements<V, F>::Load(row + e, columns));
        }
      };
      const auto clear = [&](int64_t from, int64_t to) {
        if (from < to) std::memset(panel + from * kWidth, 0, (to - from) * kWidth * sizeof(float));
      };
      for (int64_t n = 0; n < count_; ++n) {
        store(n, value + KeyAt(entries[n]) * tile_.value_stride, E{});
      }
      clear(count_, Panels::RoundUp(count_));
      for (int64_t g = 0; g < rest.groups; ++g) {
        store(Panels::RoundUp(count_) + g, rest.values + g * rest.stride * dim, Float32{});
      }
      clear(lanes_, padded_);
    });
  }

  // The keys' own biases, groups' scores, and their masses.
  void SetBiases(const uint64_t* entries, const Rest& rest) {
    biased_ = shape_.biased || rest.groups > 0 || count_ < padded_;
    if (!biased_) return;
    for (int64_t lane = 0; lane < padded_; ++lane) {
      scratch_.biases[lane] = lane < count_ ? 0 : -__builtin_inff();
      scratch_.masses[lane] = 1;
    }
    for (int64_t n = 0; shape_.biased && n < count_; ++n) {
      const double bias = tile_.key_bias[KeyAt(entries[n]) * tile_.key_bias_stride];
      scratch_.biases[n] = static_cast<float>(bias / softmax_.magnitude);
    }
    for (int64_t g = 0; g < rest.groups; ++g) {
      scratch_.biases[Panels::RoundUp(count_) + g] = rest.scores[g * rest.stride];
      scratch_.masses[Panels::RoundUp(count_) + g] = rest.masses[g * rest.stride];
    }
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

  // Each member's exponentials over the keys, the factors for them, which share `mass` unless
  // `grouped`, and then the log-sum-exp. Calls prefetch(i) for each member, to prefetch rows while
  // there is other work.
  template <typename PrefetchMember>
  void Weights(const int32_t* order, int64_t members, bool grouped, float mass,
               PrefetchMember prefetch) {
    Panels::For(lanes_, [&](auto vectors, int64_t first) {
      constexpr int64_t kWidth = decltype(vectors)::N * kLanes;
      float* const scores = scratch_.scores + first * members;
      Products<V>::template Scores<decltype(vectors)::N>(scratch_.keys + first * shape_.head_dim,
                                                         scratch_.members, shape_.head_dim, members,
                                                         scores);
      for (int64_t i = 0; biased_ && i < members; ++i) {
        for (int64_t n = 0; n < kWidth; n += kLanes) {
          float* const score = scores + i * kWidth + n;
          V::Store(score, V::Load(score) + V::Load(scratch_.biases + first + n));
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
      Panels::For(lanes_, [&](auto vectors, int64_t first) {
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
      float maxima[kLanes];
      V::Store(maxima, maximum);

      for (int64_t i = 0; i < rows; ++i) prefetch(at + i);
      for (int64_t i = 0; i < kLanes; ++i) partial[i] = V::Zero();
      Panels::For(lanes_, [&](auto vectors, int64_t first) {
        constexpr int64_t kWidth = decltype(vectors)::N * kLanes;
        for (int64_t i = 0; i < rows; ++i) {
          const float* const row = scratch_.scores + first * members + (at + i) * kWidth;
          float* const weights = scratch_.weights + (at + i) * padded_ + first;
          const Vec greatest = V::Broadcast(maxima[i]);
          for (int64_t n = 0; n < kWidth; n += kLanes) {
            Vec weight = Exp2<V>((V::Load(row + n) - greatest) * scale);
            if (grouped) weight = weight * V::Load(scratch_.masses + first + n);
            V::Store(weights + n, weight);
            partial[i] += weight;
          }
        }
      });
      V::Transpose(partial);
      Vec sum = partial[0];
      for (int64_t i = 1; i < kLanes; ++i) sum = sum + partial[i];
      const Vec shared = grouped ? one : V::Broadcast(mass);
      // Sums of no key are 0; others are 1 at least.
      V::Store(scratch_.factors + at, shared / V::Max(one, sum));
      if (!grouped || tile_.log_sum_exp == nullptr) continue;
      float logs[kLanes];
      V::Store(logs, sum);
      for (int64_t i = 0; i < kLanes; ++i) logs[i] = softmax_.LogSum(maxima[i], logs[i]);
      for (int64_t i = 0; i < rows; ++i) {
        tile_.log_sum_exp[order[at + i] * tile_.log_sum_exp_stride] = logs[i];
      }
    }
  }

  // `others` [value_dim], or null, is added to each member's row.
  template <typename E>
  void StoreRows(const int32_t* order, int64_t members, const float* others) {
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
          const Vec sum = V::Load(scratch_.outputs + i * kWidth + e - first);
          const Vec row =
              others == nullptr
                  ? (factor * sum)
                  : V::MultiplyAdd(factor, sum, Elements<V, Float32>::Load(others + e, columns));
          Elements<V, E>::Store(output + order[i] * tile_.output_stride + e, row, columns);
        }
      }
    });
  }

  const CentroidShape& shape_;
  const CentroidTile& tile_;
  const SoftmaxScale<V>& softmax_;
  Scratch scratch_;
  int64_t count_ = 0;    // top keys
  int64_t lanes_ = 0;    // of them and of groups
  int64_t padded_ = 0;   // to whole vectors
  bool biased_ = false;  // scores are not yet those of `keys`
};

}  // namespace castor::kernels
