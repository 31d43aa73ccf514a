// The kernel of flash.h, written once over the vectors of simd.h. Each instruction set's file
// includes this and instantiates Flash<V> with its own V, so that the linker cannot use a function
// compiled for one set in place of another's.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/attention/flash.h"
#include "engine/kernels/cpu/attention/operands.inl.h"
#include "engine/kernels/cpu/attention/positions.inl.h"
#include "engine/kernels/cpu/attention/softmax.inl.h"
#include "engine/kernels/cpu/clustered/products.inl.h"
#include "engine/kernels/cpu/linear/panels.inl.h"
#include "engine/kernels/cpu/rows.inl.h"
#include "engine/kernels/cpu/scratch.inl.h"

namespace castor::kernels {

template <typename V>
class Flash {
 public:
  static int64_t ScratchFloats(const FlashShape& shape) {
    return Scratch(nullptr, shape).floats.value();
  }

  static void Pack(const FlashShape& shape, const FlashHead& head, int64_t key_begin,
                   int64_t key_end, float* scratch) {
    Flash flash(shape, head, 0, kFlashTileQueries, scratch);
    ForElements(shape.element, [&](auto element) {
      for (int64_t begin = key_begin; begin < key_end; begin += kKeyBlock) {
        using E = decltype(element);
        flash.template LoadBlock<E>(flash.template PackedBlock<E>(begin));
      }
    });
  }

  static void Run(const FlashShape& shape, const FlashHead& head, int64_t query_begin,
                  int64_t query_end, int64_t key_begin, int64_t key_end, float* scratch) {
    Flash flash(shape, head, query_begin, query_end, scratch);
    ForElements(shape.element,
                [&](auto element) { flash.template Run<decltype(element)>(key_begin, key_end); });
  }

 private:
  using Vec = typename V::Vec;
  static constexpr int64_t kLanes = V::kLanes;
  using Panels = kernels::Panels<V>;

  template <typename F>
  static void ForElements(Element element, F f) {
    if constexpr (V::kHasPairs) {
      f(BFloat16{});
    } else {
      ForElement<V>(element, f);
    }
  }

  // A block of keys and one of values fill 64 KB of the second-level cache at head_dim 64, and a
  // panel's scores 12 KB of the first.
  static constexpr int64_t kKeyBlock = kFlashKeyBlock;

  // The layout of the scratch area; without an area, only its size. W is the width of the current
  // panel.
  struct Scratch : ScratchArea<V> {
    Scratch(float* base, const FlashShape& shape) : ScratchArea<V>(base) {
      constexpr int64_t kQueries = Panels::RoundUp(kFlashTileQueries);
      queries = this->Allocate(Count(kQueries) * shape.head_dim);
      outputs = this->Allocate(Count(kQueries) * shape.value_dim);
      maxima = this->Allocate(kQueries);
      sums = this->Allocate(kQueries);
      keys = this->Allocate(Count(kKeyBlock) * shape.head_dim);
      values = this->Allocate(Count(kKeyBlock) * shape.value_dim);
      row = this->Allocate(shape.value_dim);
      scores = this->Allocate(kKeyBlock * Panels::kMaxWidth);
      decay = this->Allocate(Panels::kMaxWidth);
      if (shape.bias_reach >= 0) bias = this->Allocate(PositionTable<V>::Floats(shape.bias_reach));
    }
    float* queries;         // panel after panel: [head_dim, W], or half as many words
    float* outputs;         // panel after panel: [value_dim, W], not yet divided by the sums
    float* maxima;          // [lanes] of the scores so far
    float* sums;            // [lanes] of the weights so far
    float* keys;            // [kKeyBlock, head_dim], or half as many words
    float* values;          // [kKeyBlock, value_dim], packed, or half as many words
    float* row;             // [value_dim] words, before they are packed
    float* scores;          // [kKeyBlock, W], then the weights
    float* decay;           // [W], factors for earlier sums, by the block's new maxima
    float* bias = nullptr;  // PositionTable's
  };

  Flash(const FlashShape& shape, const FlashHead& head, int64_t query_begin, int64_t query_end,
        float* scratch)
      : shape_(shape),
        head_(head),
        query_begin_(query_begin),
        query_end_(query_end),
        scratch_(scratch, shape),
        products_(shape.scale, shape.biased || shape.softcap > 0),
        softmax_(shape.softcap > 0 ? SoftmaxScale<V>(1, true) : products_),
        visible_range_{.behind = shape.left >= 0 ? shape.left : kFar,
                       .ahead = shape.causal ? 0 : (shape.right >= 0 ? shape.right : kFar)},
        bias_scale_(shape.biased ? 1 / softmax_.magnitude : 1),
        slope_(static_cast<float>(static_cast<double>(head.slope) * bias_scale_)) {}

  // Keys and values as the products read them, in Operands' words.
  struct Block {
    int64_t begin;  // the first key; even, if a word holds two
    int64_t count;
    float* keys;  // [count, words of head_dim]
    PackedValues<V> values;
  };

  template <typename E>
  static constexpr int64_t Words(int64_t elements) {
    constexpr int64_t kInWord = Operands<V, E>::kInWord;
    return (elements + kInWord - 1) / kInWord;
  }
  // The first element of the word of element i.
  template <typename E>
  static constexpr int64_t WordBegin(int64_t i) {
    return i - i % Operands<V, E>::kInWord;
  }

  template <typename E>
  void Run(int64_t key_begin, int64_t key_end) {
    const int64_t queries = query_end_ - query_begin_;
    const FlashRange range = FlashKeys(shape_, head_.places, query_begin_, query_end_);
    if (key_begin == range.first()) {
      if (head_.packed == nullptr) PrefetchKeys<E>(key_begin, key_end);
      Panels::For(queries, [&](auto vectors, int64_t lane) {
        LoadPanel<decltype(vectors)::N, E>(lane, queries - lane);
      });
      if (shape_.bias_reach >= 0) {
        const int64_t shift = head_.places.shift;
        PositionTable<V>::Fill(head_.bias_table, shape_.bias_reach, bias_scale_,
                               query_begin_ + shift - (range.end - 1),
                               query_end_ - 1 + shift - range.first(), scratch_.bias);
      }
    }
    int64_t count = 0;
    for (int64_t begin = WordBegin<E>(key_begin); begin < key_end; begin += count) {
      if (begin >= range.visible && begin < range.begin) {  // no query sees the keys between
        begin = WordBegin<E>(range.begin);
        if (begin >= key_end) break;
      }
      // Blocks end at multiples of their size, wherever the first key is.
      count = kKeyBlock - begin % kKeyBlock;
      if (key_end - begin < count) count = key_end - begin;
      if (begin < range.visible && begin + count <= range.begin && range.visible - begin < count) {
        count = range.visible - begin;
      }
      const Block block = head_.packed != nullptr ? PackedBlock<E>(begin - begin % kKeyBlock)
                                                  : ScratchBlock<E>(begin, count);
      if (head_.packed == nullptr) LoadBlock<E>(block);
      Panels::For(queries, [&](auto vectors, int64_t lane) {
        AttendPanel<decltype(vectors)::N, E>(lane, block, begin, count);
      });
    }
    if (key_end < range.end) return;
    Panels::For(queries, [&](auto vectors, int64_t lane) {
      StorePanel<decltype(vectors)::N, E>(lane, queries - lane);
    });
  }

  // A block of this tile's own. The panels of a narrow tile are as narrow as the tile.
  template <typename E>
  Block ScratchBlock(int64_t begin, int64_t count) const {
    const int64_t vectors = Panels::Vectors(query_end_ - query_begin_);
    const int64_t widest = vectors < Panels::kMaxVectors ? vectors : Panels::kMaxVectors;
    return {begin,
            count,
            scratch_.keys,
            {scratch_.values, Words<E>(count), shape_.value_dim, V::kRows[widest]}};
  }

  // The block from key `begin` on in what Pack makes.
  template <typename E>
  Block PackedBlock(int64_t begin) const {
    const int64_t left = head_.places.keys - begin;
    const int64_t count = left < kKeyBlock ? left : kKeyBlock;
    float* const keys = head_.packed + begin * (shape_.head_dim + shape_.value_dim);
    return {begin,
            count,
            keys,
            {keys + count * shape_.head_dim, Words<E>(count), shape_.value_dim,
             V::kRows[Panels::kMaxVectors]}};
  }

  // Prefetches the first rows, which a short sequence would wait for: they lie a token apart, where
  // the processor's own prefetcher does not find them.
  template <typename E>
  void PrefetchKeys(int64_t key_begin, int64_t key_end) const {
    const int64_t end = key_end - key_begin < kKeyBlock ? key_end : key_begin + kKeyBlock;
    for (int64_t j = key_begin; j < end; ++j) {
      PrefetchRow<V>(RowOf<E>(head_.key, head_.key_stride, j), shape_.head_dim);
    }
  }

  template <typename E>
  static const typename E::Bits* RowOf(const void* rows, int64_t stride, int64_t j) {
    return static_cast<const typename E::Bits*>(rows) + j * stride;
  }

  // Calls f with the function from a panel's lanes to where their rows begin in a tensor of
  // [tokens, group, dim], `stride` from token to token.
  template <typename F>
  void ForRows(int64_t lane, int64_t stride, int64_t dim, F f) const {
    const int64_t first = query_begin_ + lane;
    if (head_.group == 1) {
      f([=](int64_t i) { return (first + i) * stride; });
      return;
    }
    int64_t begins[Panels::kMaxWidth];
    int64_t token = first / head_.group;
    int64_t head = first % head_.group;
    for (int64_t& begin : begins) {
      begin = token * stride + head * dim;
      if (++head < head_.group) continue;
      head = 0;
      ++token;
    }
    f([&](int64_t i) { return begins[i]; });
  }

  template <typename E>
  void LoadBlock(const Block& block) {
    for (int64_t j = 0; j < block.count; ++j) {
      PrefetchRow<V>(RowOf<E>(head_.value, head_.value_stride, block.begin + j), shape_.value_dim);
      Operands<V, E>::LoadKey(RowOf<E>(head_.key, head_.key_stride, block.begin + j),
                              shape_.head_dim, block.keys + j * Words<E>(shape_.head_dim));
    }
    constexpr int64_t kInWord = Operands<V, E>::kInWord;
    for (int64_t j = 0; j < block.count; j += kInWord) {
      const auto* const row = RowOf<E>(head_.value, head_.value_stride, block.begin + j);
      const auto* const next = j + 1 < block.count ? row + head_.value_stride : nullptr;
      Operands<V, E>::LoadValues(row, next, shape_.value_dim, scratch_.row);
      block.values.SetRow(j / kInWord, scratch_.row);
    }
  }

  // Transposes up to N vectors of queries into the panel at `lane` and resets its state.
  template <int N, typename E>
  void LoadPanel(int64_t lane, int64_t count) {
    const auto* const queries = static_cast<const typename E::Bits*>(head_.query);
    float* const panel = scratch_.queries + lane * shape_.head_dim;
    ForRows(lane, head_.query_stride, shape_.head_dim, [&](auto at) {
      Panels::template Load<N, E>([&](int64_t i) { return queries + at(i); }, count,
                                  shape_.head_dim, Factor<E>(), panel);
    });
    Operands<V, E>::template Pack<N>(shape_.head_dim, panel);
    std::memset(scratch_.outputs + lane * shape_.value_dim, 0,
                N * kLanes * shape_.value_dim * sizeof(float));
    for (int64_t i = lane; i < lane + N * kLanes; ++i) {
      // Finite, so that hidden scores, which are -Inf, may come before the first that is seen.
      scratch_.maxima[i] = -kLargestFloat;
      scratch_.sums[i] = 0;
    }
  }

  template <int N, typename E>
  void StorePanel(int64_t lane, int64_t count) {
    auto* const outputs = static_cast<typename E::Bits*>(head_.output);
    // A sum is 1 at least, or 0 where a query sees no key: its row is zero.
    Vec sums[N];
    for (int v = 0; v < N; ++v) {
      sums[v] = V::Max(V::Broadcast(1.0f), V::Load(scratch_.sums + lane + v * kLanes));
    }
    ForRows(lane, head_.output_stride, shape_.value_dim, [&](auto at) {
      Panels::template Store<N, E>(
          scratch_.outputs + lane * shape_.value_dim, count, shape_.value_dim,
          [&](int v, Vec x) { return x / sums[v]; }, [&](int64_t i) { return outputs + at(i); });
    });
    if (head_.log_sum_exp == nullptr) return;
    float logs[N * kLanes];
    for (int64_t i = 0; i < N * kLanes; ++i) {
      logs[i] = softmax_.LogSum(scratch_.maxima[lane + i], scratch_.sums[lane + i]);
    }
    for (int64_t i = 0; head_.slope != 0 && i < N * kLanes; ++i) {  // what AddSlope left out
      const int64_t place = query_begin_ + lane + i + head_.places.shift;
      const auto beyond = static_cast<double>(place - NearestKey(place, head_.places.keys));
      logs[i] = static_cast<float>(logs[i] - double{head_.slope} * __builtin_fabs(beyond));
    }
    ForRows(lane, head_.log_sum_exp_stride, 1, [&](auto at) {
      for (int64_t i = 0; i < N * kLanes && i < count; ++i) head_.log_sum_exp[at(i)] = logs[i];
    });
  }

  // What queries are multiplied by. Scores are, if bfloat16 might not hold the queries' products.
  template <typename E>
  float Factor() const {
    return Operands<V, E>::kInWord > 1 ? 1 : products_.factor;
  }

  // Keys [key_begin, key_begin + count) of a block.
  template <int N, typename E>
  void AttendPanel(int64_t lane, const Block& block, int64_t key_begin, int64_t count) {
    constexpr int64_t kWidth = N * kLanes;
    const int64_t first_query = query_begin_ + lane;
    const int64_t place = first_query + head_.places.shift;
    FlashPlaces places = head_.places;
    places.keys = key_begin + count;
    const FlashRange seen = FlashKeys(shape_, places, first_query, first_query + kWidth);
    const bool whole = seen.begin <= key_begin || key_begin < seen.visible;
    const int64_t begin = whole ? key_begin : WordBegin<E>(seen.begin);
    const int64_t seen_count = seen.end - begin;
    if (seen_count <= 0) return;
    const int64_t skipped = begin - block.begin;
    const int64_t words = Words<E>(shape_.head_dim);
    Operands<V, E>::Products::template Scores<N>(scratch_.queries + lane * shape_.head_dim,
                                                 block.keys + skipped * words, words, seen_count,
                                                 scratch_.scores);
    if (Factor<E>() != products_.factor) {
      const Vec factor = V::Broadcast(products_.factor);
      for (int64_t i = 0; i < seen_count * N; ++i) {
        float* const score = scratch_.scores + i * kLanes;
        V::Store(score, factor * V::Load(score));
      }
    }
    if (shape_.softcap > 0) {
      CapScores<V, N>(FiniteFactor<V>(products_.magnitude / shape_.softcap),
                      static_cast<float>(shape_.softcap), seen_count, scratch_.scores);
    }
    if (shape_.bias_reach >= 0) {
      PositionTable<V>::template Add<N>(scratch_.bias, shape_.bias_reach, place, begin, seen_count,
                                        scratch_.scores);
    }
    if (slope_ != 0) {
      AddSlope<V, N>(slope_, place, head_.places.keys, begin, seen_count, scratch_.scores);
    }
    if (head_.key_bias != nullptr) {
      AddKeyBias<V, N>(head_.key_bias + begin * head_.key_bias_stride, head_.key_bias_stride,
                       bias_scale_, seen_count, scratch_.scores);
    }
    Hide<N>(place, begin, seen_count);
    OnlineSoftmax<V, N>(scratch_.scores, seen_count, softmax_.exponent_scale,
                        scratch_.maxima + lane, scratch_.sums + lane, scratch_.decay);
    Operands<V, E>::template Pack<N>(seen_count, scratch_.scores);
    Operands<V, E>::Products::template AddValues<N>(
        scratch_.scores, block.values, Words<E>(skipped), Words<E>(seen_count), scratch_.decay,
        scratch_.outputs + lane * shape_.value_dim);
  }

  // Keys from `begin` on whose scores are in memory: to some of the panel's queries they are
  // hidden.
  template <int N>
  void Hide(int64_t place, int64_t begin, int64_t count) {
    int64_t visible = shape_.left >= 0 ? head_.places.visible - begin : 0;
    if (visible > count) visible = count;
    if (visible > 0) {
      const VisibleRange range = {.behind = kFar, .ahead = visible_range_.ahead};
      HideKeys<V, N>(range, place, begin, visible, scratch_.scores);
      if (visible == count) return;
      begin += visible;
      HideKeys<V, N>(visible_range_, place, begin, count - visible,
                     scratch_.scores + visible * N * kLanes);
      return;
    }
    HideKeys<V, N>(visible_range_, place, begin, count, scratch_.scores);
  }

  const FlashShape& shape_;
  const FlashHead& head_;
  const int64_t query_begin_;
  const int64_t query_end_;
  Scratch scratch_;
  const SoftmaxScale<V> products_;  // of the scores before a softcap; its factor is in the queries
  const SoftmaxScale<V> softmax_;
  const VisibleRange visible_range_;
  const double bias_scale_;
  const float slope_;
};

}  // namespace castor::kernels
