// The kernel of few_rows.h, written once over the vectors of simd.h; a template over the vector
// type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/attention/few_rows.h"
#include "engine/kernels/cpu/attention/softmax.inl.h"
#include "engine/kernels/cpu/rows.inl.h"
#include "engine/kernels/cpu/scratch.inl.h"

namespace castor::kernels {

// One head's.
template <typename V>
class FewRowsPart {
 public:
  static Count ScratchFloats(const FlashShape& shape, int64_t queries, int64_t heads) {
    return Scratch(nullptr, shape, queries, heads).floats;
  }

  static void Attend(const FlashShape& shape, const FewRows& rows, int64_t key_begin,
                     int64_t key_end, float* scratch) {
    const FlashRange range = FlashKeys(shape, rows.heads->places, 0, rows.rows);
    ForElement<V>(shape.element, [&](auto element) {
      using E = decltype(element);
      for (int64_t head = 0; head < rows.count; ++head) {
        FewRowsPart(shape, rows, head, scratch).template Begin<E>(key_begin, key_end);
      }
      if (key_end > range.end) key_end = range.end;
      for (int64_t begin = key_begin; begin < key_end; begin += kBlock) {
        const int64_t end = key_end - begin < kBlock ? key_end : begin + kBlock;
        if (begin >= range.visible && end <= range.begin) continue;
        // The next block is prefetched line by line, among the products: heads' rows lie too far
        // apart for the processor's own prefetcher.
        const int64_t ahead = begin + 2 * kBlock <= key_end ? kBlock : 0;
        for (int64_t head = 0; head < rows.count; ++head) {
          const FewRowsPart part(shape, rows, head, scratch);
          if (part.padded_ == 1) part.template Attend<1, E>(range, begin, end, ahead);
          if (part.padded_ == 2) part.template Attend<2, E>(range, begin, end, ahead);
          if (part.padded_ > 2) part.template Attend<4, E>(range, begin, end, ahead);
        }
      }
    });
  }

  static void Join(const FlashShape& shape, const FewRows& rows, int64_t parts,
                   int64_t part_stride) {
    const FewRowsPart part(shape, rows, 0, nullptr);
    ForElement<V>(shape.element, [&](auto element) {
      for (int64_t q = 0; q < part.queries_; ++q) {
        part.template JoinQuery<decltype(element)>(q, parts, part_stride);
      }
    });
  }

 private:
  using Vec = typename V::Vec;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kBlock = kFewRowsBlock;

  struct Scratch : ScratchArea<V> {
    Scratch(float* base, const FlashShape& shape, int64_t queries, int64_t heads)
        : ScratchArea<V>(base) {
      const int64_t padded = FewRowsPadded(queries);
      scores = this->Allocate(Count(padded) * kBlock);
      decay = this->Allocate(padded);
      rows = this->Allocate(Count(shape.head_dim).RoundedUp(kLanes) * padded * heads);
    }
    float* scores;  // [padded, kBlock], then the weights
    float* decay;   // [padded], factors for earlier sums, by the block's new maxima
    float* rows;    // [heads, padded, head_dim in whole vectors]: the queries
  };

  FewRowsPart(const FlashShape& shape, const FewRows& rows, int64_t head, float* scratch)
      : shape_(shape),
        head_(rows.heads[head]),
        queries_(rows.rows * head_.group),
        padded_(FewRowsPadded(queries_)),
        width_((shape.head_dim + kLanes - 1) / kLanes * kLanes),
        weights_at_((shape.value_dim + 15) / 16 * 16),
        sums_(rows.sums + head * padded_ * (weights_at_ + 32)),
        scratch_(scratch, shape, queries_, rows.count),
        rows_(scratch_.rows + head * padded_ * width_),
        products_(shape.scale, shape.biased || shape.softcap > 0),
        softmax_(shape.softcap > 0 ? SoftmaxScale<V>(1, true) : products_) {}

  // Query q is that of row q / group in head q % group.
  float* Sums(int64_t q) const { return sums_ + q * (weights_at_ + 32); }
  float* WeightsOf(float* sums) const { return sums + weights_at_; }
  float* MaximumOf(float* sums) const { return sums + weights_at_ + 16; }
  int64_t At(int64_t q, int64_t stride, int64_t dim) const {
    return q / head_.group * stride + q % head_.group * dim;
  }

  // Some keys, one after another, or their values.
  template <typename E>
  struct Rows {
    const typename E::Bits* first;
    int64_t stride;
    int64_t dim;
    int64_t ahead;  // the distance of what is prefetched, or 0

    const typename E::Bits* operator[](int64_t j) const { return first + j * stride; }
  };
  template <typename E>
  Rows<E> Keys(int64_t begin, int64_t ahead = 0) const {
    return {static_cast<const typename E::Bits*>(head_.key) + begin * head_.key_stride,
            head_.key_stride, shape_.head_dim, ahead * head_.key_stride};
  }
  template <typename E>
  Rows<E> Values(int64_t begin, int64_t ahead = 0) const {
    return {static_cast<const typename E::Bits*>(head_.value) + begin * head_.value_stride,
            head_.value_stride, shape_.value_dim, ahead * head_.value_stride};
  }

  template <typename E>
  void Begin(int64_t key_begin, int64_t key_end) const {
    const int64_t count = key_end - key_begin < kBlock ? key_end - key_begin : kBlock;
    for (const Rows<E>& rows : {Keys<E>(key_begin), Values<E>(key_begin)}) {
      for (int64_t j = 0; j < count; ++j) PrefetchRowFar<V>(rows[j], rows.dim);
    }
    std::memset(sums_, 0, padded_ * (weights_at_ + 32) * sizeof(float));
    std::memset(rows_, 0, padded_ * width_ * sizeof(float));
    const auto* const queries = static_cast<const typename E::Bits*>(head_.query);
    for (int64_t q = 0; q < padded_; ++q) {
      // Finite, so that hidden scores, which are -Inf, may come before the first that is seen.
      *MaximumOf(Sums(q)) = -kLargestFloat;
      if (q >= queries_) continue;
      AddRow<V, E>(products_.factor, queries + At(q, head_.query_stride, shape_.head_dim),
                   shape_.head_dim, rows_ + q * width_);
    }
  }

  // Keys [begin, end) of a block.
  template <int Q, typename E>
  void Attend(const FlashRange& range, int64_t begin, int64_t end, int64_t ahead) const {
    const int64_t count = end - begin;
    const Rows<E> keys = Keys<E>(begin, ahead);
    for (int64_t q = 0; q < padded_; q += Q) {
      for (int64_t j = 0; j < count; j += kLanes / Q) ScoreTile<Q, E>(q, keys, j, count);
    }
    for (int64_t q = 0; q < padded_; ++q) Weigh(q, begin, count);
    // Values that no query sees are left out, since they may be infinite.
    const int64_t hidden = begin >= range.visible && begin < range.begin ? range.begin - begin : 0;
    const Rows<E> values = Values<E>(begin, ahead);
    for (int64_t q = 0; q < padded_; q += Q) {
      constexpr int kVectors = kLanes < 16 ? 8 / Q : 4;
      int64_t e = 0;
      for (; e + kVectors * kLanes <= values.dim; e += kVectors * kLanes) {
        ValueTile<Q, kVectors, E>(q, values, hidden, count, e, kLanes);
      }
      for (; e < values.dim; e += kLanes) {
        const int64_t left = values.dim - e;
        ValueTile<Q, 1, E>(q, values, hidden, count, e, left < kLanes ? left : kLanes);
      }
    }
  }

  // Q queries and as many keys, from the block's key j on, as make a vector of scores.
  template <int Q, typename E>
  void ScoreTile(int64_t first_query, const Rows<E>& rows, int64_t j, int64_t count) const {
    constexpr int kKeys = kLanes / Q;
    const float* const queries = rows_ + first_query * width_;
    const int64_t ahead = first_query == 0 ? rows.ahead : 0;
    const typename E::Bits* keys[kKeys];
    for (int k = 0; k < kKeys; ++k) {  // the last one again, for what Weigh hides
      keys[k] = rows[j + k < count ? j + k : count - 1];
    }
    Vec sum[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) sum[i] = V::Zero();
    const auto add = [&](int64_t e, int64_t elements) __attribute__((always_inline)) {
      if (ahead > 0 && e * sizeof(*keys[0]) % 64 == 0) {
#pragma GCC unroll 16
        for (int k = 0; k < kKeys; ++k) __builtin_prefetch(keys[k] + ahead + e, 0, 2);
      }
      Vec key[kKeys];
#pragma GCC unroll 16
      for (int k = 0; k < kKeys; ++k) key[k] = Elements<V, E>::Load(keys[k] + e, elements);
#pragma GCC unroll 4
      for (int q = 0; q < Q; ++q) {
        const Vec query = V::Load(queries + q * width_ + e);
#pragma GCC unroll 16
        for (int k = 0; k < kKeys; ++k) {
          sum[q * kKeys + k] = V::MultiplyAdd(query, key[k], sum[q * kKeys + k]);
        }
      }
    };
    int64_t e = 0;
    for (; e + kLanes <= rows.dim; e += kLanes) add(e, kLanes);
    if (e < rows.dim) add(e, rows.dim - e);
    float each[kLanes];
    V::Store(each, V::SumEach(sum));
    for (int q = 0; q < Q; ++q) {
      std::memcpy(scratch_.scores + (first_query + q) * kBlock + j, each + q * kKeys,
                  kKeys * sizeof(float));
    }
  }

  // A query's scores become weights.
  void Weigh(int64_t q, int64_t begin, int64_t count) const {
    float* const scores = scratch_.scores + q * kBlock;
    if (shape_.softcap > 0) {
      CapScores<V, 1>(FiniteFactor<V>(products_.magnitude / shape_.softcap),
                      static_cast<float>(shape_.softcap), kBlock / kLanes, scores);
    }
    for (int64_t j = 0; head_.key_bias != nullptr && j < count; ++j) {
      const double bias = head_.key_bias[(begin + j) * head_.key_bias_stride];
      scores[j] += static_cast<float>(bias / softmax_.magnitude);
    }
    const int64_t row = q / head_.group;
    const FlashRange seen = FlashKeys(shape_, head_.places, row, row + 1);
    if (begin < seen.begin || begin + kBlock > seen.end) {
      for (int64_t j = 0; j < kBlock; ++j) {
        const bool behind = begin + j < seen.begin && begin + j >= seen.visible;
        if (behind || begin + j >= seen.end) scores[j] = -__builtin_inff();
      }
    }
    // The online step. Lanes' weights are added up at the end.
    float* const maximum = MaximumOf(Sums(q));
    const Vec before = V::Broadcast(*maximum);
    const Vec scale = V::Broadcast(softmax_.exponent_scale);
    Vec most = before;
    MaximaDown<V, 1>(scores, kBlock / kLanes, &most);
    if (V::Greater(most, before) != 0) *maximum = V::Greatest(most);
    const Vec after = V::Broadcast(*maximum);
    Vec sum;
    WeightsDown<V, 1>(scores, kBlock / kLanes, &scale, &after, &sum);
    const Vec kept = Exp2<V>((before - after) * scale);
    scratch_.decay[q] = kept[0];
    float* const weights = WeightsOf(Sums(q));
    V::Store(weights, V::MultiplyAdd(V::Load(weights), kept, sum));
  }

  // Adds weighted values [begin, end) of a block: N vectors of columns from `e` on, the last with
  // `elements` elements.
  template <int Q, int N, typename E>
  void ValueTile(int64_t q, const Rows<E>& rows, int64_t begin, int64_t end, int64_t e,
                 int64_t elements) const {
    const float* const weights = scratch_.scores + q * kBlock;
    const int64_t ahead = q == 0 ? rows.ahead : 0;
    Vec sum[Q][N];
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < N; ++v) sum[i][v] = V::Zero();
    }
    for (int64_t j = begin; j < end; ++j) {
      const typename E::Bits* const row = rows[j] + e;
      if (ahead > 0) {
#pragma GCC unroll 8
        for (size_t at = 0; at < N * kLanes; at += 64 / sizeof(*row)) {
          __builtin_prefetch(row + ahead + at, 0, 2);
        }
      }
      Vec value[N];
#pragma GCC unroll 8
      for (int v = 0; v < N; ++v) {
        value[v] = Elements<V, E>::Load(row + v * kLanes, N > 1 ? kLanes : elements);
      }
#pragma GCC unroll 4
      for (int i = 0; i < Q; ++i) {
        const Vec weight = V::Broadcast(weights[i * kBlock + j]);
#pragma GCC unroll 8
        for (int v = 0; v < N; ++v) sum[i][v] = V::MultiplyAdd(weight, value[v], sum[i][v]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < Q; ++i) {
      const Vec kept = V::Broadcast(scratch_.decay[q + i]);
#pragma GCC unroll 8
      for (int v = 0; v < N; ++v) {
        float* const out = Sums(q + i) + e + v * kLanes;
        V::Store(out, V::MultiplyAdd(V::Load(out), kept, sum[i][v]));
      }
    }
  }

  template <typename E>
  void JoinQuery(int64_t q, int64_t parts, int64_t part_stride) const {
    float* const sums = Sums(q);
    float maximum = *MaximumOf(sums);
    for (int64_t p = 1; p < parts; ++p) {
      const float of_part = *MaximumOf(sums + p * part_stride);
      if (of_part > maximum) maximum = of_part;
    }
    const auto factor_of = [&](const float of_part) {
      const Vec below = V::Broadcast(of_part) - V::Broadcast(maximum);
      return Exp2<V>(below * V::Broadcast(softmax_.exponent_scale));
    };
    const Vec first = factor_of(*MaximumOf(sums));
    const int64_t all = weights_at_ + 16;
    for (int64_t e = 0; e < all; e += kLanes) V::Store(sums + e, first * V::Load(sums + e));
    for (int64_t p = 1; p < parts; ++p) {
      float* const more = sums + p * part_stride;
      AddRow<V, Float32>(factor_of(*MaximumOf(more))[0], more, all, sums);
    }
    // The sum of weights is 1 at least, or 0 where a query sees no key: its row is zero.
    const float total = V::Sum(V::Load(WeightsOf(sums)));
    const Vec divisor = V::Max(V::Broadcast(1.0f), V::Broadcast(total));
    for (int64_t e = 0; e < weights_at_; e += kLanes) {
      V::Store(sums + e, V::Load(sums + e) / divisor);
    }
    StoreRow<V, E>(sums, shape_.value_dim,
                   static_cast<typename E::Bits*>(head_.output) +
                       At(q, head_.output_stride, shape_.value_dim));
    if (head_.log_sum_exp == nullptr) return;
    head_.log_sum_exp[At(q, head_.log_sum_exp_stride, 1)] = softmax_.LogSum(maximum, total);
  }

  const FlashShape& shape_;
  const FlashHead& head_;
  const int64_t queries_;
  const int64_t padded_;      // queries, filled up to whole tiles
  const int64_t width_;       // floats of a query
  const int64_t weights_at_;  // behind the values' sums
  float* const sums_;
  const Scratch scratch_;
  float* const rows_;               // of this head
  const SoftmaxScale<V> products_;  // of the scores before a softcap; its factor is in the queries
  const SoftmaxScale<V> softmax_;
};

}  // namespace castor::kernels
