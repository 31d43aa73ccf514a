// Attention inside a cluster of CAST, see cast.h: its members attend to each other (step 4), and
// its summary for the others is computed (step 5). As in flash.inl.h, keys are processed in blocks
// with an online softmax; here they are gathered first.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/attention/softmax.inl.h"
#include "engine/kernels/cpu/cast/cast.h"
#include "engine/kernels/cpu/cast/cast_function.inl.h"
#include "engine/kernels/cpu/clustered/products.inl.h"
#include "engine/kernels/cpu/linear/panels.inl.h"
#include "engine/kernels/cpu/rows.inl.h"
#include "engine/kernels/cpu/scratch.inl.h"

namespace castor::kernels {

template <typename V>
class CastInside {
 public:
  static int64_t ScratchFloats(const CastShape& shape) {
    return Scratch(shape, nullptr).floats.value();
  }

  CastInside(const CastShape& shape, const CastSequence& sequence, const CastCluster& cluster,
             float* scratch)
      : shape_(shape), sequence_(sequence), cluster_(cluster), scratch_(shape, scratch) {
    // Scores are compared before they are scaled, so a negative scale becomes the queries' sign.
    const SoftmaxScale<V> softmax(shape.scale);
    sign_ = softmax.factor;
    scale_ = shape.laplace ? FiniteFactor<V>(__builtin_fabs(shape.scale) * kLaplaceScale)
                           : softmax.exponent_scale;
  }

  template <typename E>
  void Run(int64_t begin, int64_t end, int64_t key_begin, int64_t key_end, float* inside,
           float* summary) {
    const int64_t queries = end - begin;
    if (key_begin == 0) {
      Panels::For(queries, [&](auto vectors, int64_t lane) {
        LoadQueries<decltype(vectors)::N, E>(begin + lane, queries - lane, lane);
      });
      if (summary != nullptr) {
        std::memset(summary, 0, shape_.value_dim * sizeof(float));
        scratch_.summary_state[kMaximum] = -__builtin_inff();
        scratch_.summary_state[kSum] = 0;
      }
    }
    prefetched_ = key_begin / kKeyBlock * Panels::Count(queries) * PrefetchedAtOnce(queries);
    for (int64_t block = key_begin; block < key_end; block += kKeyBlock) {
      const int64_t left = key_end - block;
      const int64_t count = left < kKeyBlock ? left : kKeyBlock;
      Gather<E>(sequence_.key, sequence_.key_stride, KeyAt(cluster_.head), shape_.head_dim, block,
                count, scratch_.keys);
      Gather<E>(sequence_.value, sequence_.value_stride, ValueAt(cluster_.head), shape_.value_dim,
                block, count, scratch_.values);
      if (summary != nullptr) AddToSummary(block, count, summary);
      Panels::For(queries, [&](auto vectors, int64_t lane) {
        if (cluster_.next_head >= 0) PrefetchNext<E>(begin, queries);
        Attend<decltype(vectors)::N>(lane, count);
      });
    }
    if (key_end < cluster_.count) return;
    Panels::For(queries, [&](auto vectors, int64_t lane) {
      StoreOutputs<decltype(vectors)::N>(lane, queries - lane, inside);
    });
    if (summary == nullptr || shape_.laplace) return;
    for (int64_t e = 0; e < shape_.value_dim; ++e) summary[e] /= scratch_.summary_state[kSum];
  }

 private:
  using Vec = typename V::Vec;
  using Panels = kernels::Panels<V>;
  static constexpr int64_t kLanes = V::kLanes;

  static constexpr int64_t kKeyBlock = kCastKeyBlock;

  // At most this many keys of the next head are prefetched: what the second-level cache has room
  // for.
  static constexpr int64_t kPrefetchKeys = 512;

  // W is the width of the current panel.
  struct Scratch : ScratchArea<V> {
    Scratch(const CastShape& shape, float* base) : ScratchArea<V>(base) {
      constexpr int64_t kQueries = Panels::RoundUp(kCastQueries);
      queries = this->Allocate(Count(kQueries) * shape.head_dim);
      outputs = this->Allocate(Count(kQueries) * shape.value_dim);
      maxima = this->Allocate(kQueries);
      sums = this->Allocate(kQueries);
      keys = this->Allocate(Count(kKeyBlock) * shape.head_dim);
      values = this->Allocate(Count(kKeyBlock) * shape.value_dim);
      scores = this->Allocate(kKeyBlock * Panels::kMaxWidth);
      decay = this->Allocate(Panels::kMaxWidth);
      summary_weights = this->Allocate(kKeyBlock);
      summary_state = this->Allocate(2);
    }
    float* queries;          // panel after panel: [head_dim, W]
    float* outputs;          // panel after panel: [value_dim, W], not yet divided by the sums
    float* maxima;           // [lanes] of the scores so far
    float* sums;             // [lanes] of the weights so far
    float* keys;             // [kKeyBlock, head_dim]
    float* values;           // [kKeyBlock, value_dim]
    float* scores;           // [kKeyBlock, W], then the weights
    float* decay;            // [W], factors for earlier sums, by the block's new maxima
    float* summary_weights;  // [kKeyBlock]
    float* summary_state;    // kMaximum of the summary's scores so far, kSum of their weights
  };
  enum { kMaximum, kSum };

  // The first element of a head's keys and values in a token's row.
  int64_t KeyAt(int64_t head) const { return head / shape_.group * shape_.head_dim; }
  int64_t ValueAt(int64_t head) const { return head / shape_.group * sequence_.value_head_stride; }

  // Rows of members [begin, begin + count) of a tensor, from element `at` on, as float32.
  template <typename E>
  void Gather(const void* tensor, int64_t stride, int64_t at, int64_t dim, int64_t begin,
              int64_t count, float* rows) const {
    const auto* first = static_cast<const typename E::Bits*>(tensor) + at;
    for (int64_t n = 0; n < count; ++n) {
      LoadRow<V, E>(first + cluster_.members[begin + n] * stride, dim, rows + n * dim);
    }
  }

  // Transposes the queries of members [begin, begin + count) into the panel at `lane`, and resets
  // its state.
  template <int N, typename E>
  void LoadQueries(int64_t begin, int64_t count, int64_t lane) {
    const auto* first =
        static_cast<const typename E::Bits*>(sequence_.query) + cluster_.head * shape_.head_dim;
    Panels::template Load<N, E>(
        [&](int64_t n) { return first + cluster_.members[begin + n] * sequence_.query_stride; },
        count, shape_.head_dim, sign_, scratch_.queries + lane * shape_.head_dim);
    std::memset(scratch_.outputs + lane * shape_.value_dim, 0,
                N * kLanes * shape_.value_dim * sizeof(float));
    for (int64_t i = lane; i < lane + N * kLanes; ++i) {
      scratch_.maxima[i] = -__builtin_inff();
      scratch_.sums[i] = 0;
    }
  }

  int64_t PrefetchedKeys() const {
    return cluster_.count < kPrefetchKeys ? cluster_.count : kPrefetchKeys;
  }

  // Rows for each panel and block, so that all are prefetched in the end.
  int64_t PrefetchedAtOnce(int64_t queries) const {
    const int64_t blocks = (cluster_.count + kKeyBlock - 1) / kKeyBlock;
    const int64_t steps = blocks * Panels::Count(queries);
    return steps == 0 ? 0 : (queries + 2 * PrefetchedKeys() + steps - 1) / steps;
  }

  // Prefetches some of the rows that the next head of this cluster begins with.
  template <typename E>
  void PrefetchNext(int64_t begin, int64_t queries) {
    const int64_t keys = PrefetchedKeys();
    const int64_t rows = queries + 2 * keys;
    const int64_t end = prefetched_ + PrefetchedAtOnce(queries);
    const int64_t head = cluster_.next_head;
    const auto prefetch = [&](const void* tensor, int64_t stride, int64_t at, int64_t dim,
                              int64_t member) {
      PrefetchRowFar<V>(
          static_cast<const typename E::Bits*>(tensor) + cluster_.members[member] * stride + at,
          dim);
    };
    for (; prefetched_ < end && prefetched_ < rows; ++prefetched_) {
      const int64_t row = prefetched_ - queries;
      if (row < 0) {
        prefetch(sequence_.query, sequence_.query_stride, head * shape_.head_dim, shape_.head_dim,
                 begin + prefetched_);
      } else if (row < keys) {
        prefetch(sequence_.key, sequence_.key_stride, KeyAt(head), shape_.head_dim, row);
      } else {
        prefetch(sequence_.value, sequence_.value_stride, ValueAt(head), shape_.value_dim,
                 row - keys);
      }
    }
  }

  // The block of `count` gathered keys for the panel that starts at `lane`.
  template <int N>
  void Attend(int64_t lane, int64_t count) {
    Products<V>::template Scores<N>(scratch_.queries + lane * shape_.head_dim, scratch_.keys,
                                    shape_.head_dim, count, scratch_.scores);
    if (shape_.laplace) {
      Vec scales[N];
      for (int v = 0; v < N; ++v) scales[v] = V::Broadcast(scale_);
      LaplaceDown<V, N>(scratch_.scores, count, scales);
      for (int64_t i = 0; i < N * kLanes; ++i) scratch_.decay[i] = 1;
    } else {
      OnlineSoftmax<V, N>(scratch_.scores, count, scale_, scratch_.maxima + lane,
                          scratch_.sums + lane, scratch_.decay);
    }
    Products<V>::template AddValues<N>(scratch_.scores, scratch_.values, shape_.value_dim, count,
                                       scratch_.decay, scratch_.outputs + lane * shape_.value_dim);
  }

  template <int N>
  void StoreOutputs(int64_t lane, int64_t count, float* inside) {
    const Vec one = V::Broadcast(1.0f);
    Vec factors[N];
    for (int v = 0; v < N; ++v) {
      factors[v] = shape_.laplace ? one : (one / V::Load(scratch_.sums + lane + v * kLanes));
    }
    float* const rows = inside + lane * shape_.value_dim;
    Panels::template Store<N, Float32>(
        scratch_.outputs + lane * shape_.value_dim, count, shape_.value_dim,
        [&](int v, Vec x) { return x * factors[v]; },
        [&](int64_t i) { return rows + i * shape_.value_dim; });
  }

  // Step 5, for a block of keys that begins at member `begin`.
  void AddToSummary(int64_t begin, int64_t count, float* summary) {
    float* const weights = scratch_.summary_weights;
    SummaryScores(begin, count);
    float decay = 1;
    if (shape_.laplace) {
      for (int64_t n = 0; n < count; n += kLanes) {
        const Vec z =
            V::MultiplyAdd(V::Load(weights + n), V::Broadcast(static_cast<float>(kLaplaceScale)),
                           V::Broadcast(kLaplaceShift));
        V::Store(weights + n, NormalDistribution<V>(z));
      }
    } else {
      float& maximum_so_far = scratch_.summary_state[kMaximum];
      float& sum_so_far = scratch_.summary_state[kSum];
      float maximum = maximum_so_far;
      for (int64_t n = 0; n < count; ++n) maximum = weights[n] > maximum ? weights[n] : maximum;
      for (int64_t n = 0; n < count; n += kLanes) {
        const Vec below = V::Load(weights + n) - V::Broadcast(maximum);
        V::Store(weights + n, Exp2<V>(below * V::Broadcast(static_cast<float>(kLog2E))));
      }
      float changed[kLanes];
      V::Store(changed,
               Exp2<V>(V::Broadcast((maximum_so_far - maximum) * static_cast<float>(kLog2E))));
      decay = changed[0];
      float sum = 0;
      for (int64_t n = 0; n < count; ++n) sum += weights[n];
      sum_so_far = sum_so_far * decay + sum;
      maximum_so_far = maximum;
    }
    SummaryValues(count, decay, summary);
  }

  // summary_weights[n] = scale * temperature of member n * its key . the cluster's surrogate,
  // within the finite numbers. The lanes of a vector first hold a key's partial sums, and then
  // keys.
  void SummaryScores(int64_t begin, int64_t count) {
    const float* const surrogate =
        sequence_.surrogates +
        (cluster_.head * shape_.clusters + cluster_.cluster) * shape_.head_dim;
    const double magnitude = __builtin_fabs(shape_.scale);
    const Vec least = V::Broadcast(-kLargestFloat);
    for (int64_t n = 0; n < count; n += kLanes) {
      const int64_t width = count - n < kLanes ? count - n : kLanes;
      Vec sums[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        const float* const key = scratch_.keys + (n + i) * shape_.head_dim;
        sums[i] = i < width ? MultiplyRows<V>(key, surrogate, shape_.head_dim) : V::Zero();
      }
      V::Transpose(sums);
      Vec dots = sums[0];
      for (int64_t i = 1; i < kLanes; ++i) dots = dots + sums[i];
      float factors[kLanes] = {};
      for (int64_t i = 0; i < width; ++i) {
        const int32_t member = cluster_.members[begin + n + i];
        factors[i] = sign_ * FiniteFactor<V>(magnitude * sequence_.key_temperature[member]);
      }
      const Vec above = V::Max(least, dots * V::Load(factors));
      const Vec negated = V::Max(least, V::Zero() - above);
      V::Store(scratch_.summary_weights + n, V::Zero() - negated);
    }
  }

  // summary = decay * summary + the sum over the block of weights times values.
  void SummaryValues(int64_t count, float decay, float* summary) {
    ForColumns<V>(shape_.value_dim, [&](int64_t e, int64_t columns) {
      Vec sum = V::Zero();
      for (int64_t n = 0; n < count; ++n) {
        sum = V::MultiplyAdd(
            V::Broadcast(scratch_.summary_weights[n]),
            Elements<V, Float32>::Load(scratch_.values + n * shape_.value_dim + e, columns), sum);
      }
      const Vec before = Elements<V, Float32>::Load(summary + e, columns);
      Elements<V, Float32>::Store(summary + e, V::MultiplyAdd(before, V::Broadcast(decay), sum),
                                  columns);
    });
  }

  const CastShape& shape_;
  const CastSequence& sequence_;
  const CastCluster& cluster_;
  const Scratch scratch_;
  float sign_;              // -1, 0 or 1
  float scale_;             // |scale| times log2(e) or kLaplaceScale, within the finite numbers
  int64_t prefetched_ = 0;  // rows of the next head
};

}  // namespace castor::kernels
