// The kernel of flash.h, written once over the vectors of simd_*.h. Each instruction set's file
// includes this and instantiates Flash<V> with its own V, so that the linker cannot use a function
// compiled for one set in place of another's.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/flash.h"
#include "engine/kernels/cpu/panels.inl.h"
#include "engine/kernels/cpu/products.inl.h"
#include "engine/kernels/cpu/rows.inl.h"
#include "engine/kernels/cpu/scratch.inl.h"
#include "engine/kernels/cpu/softmax.inl.h"

namespace castor::kernels {

template <typename V>
class Flash {
 public:
  static int64_t ScratchFloats(const FlashShape& shape) {
    return Scratch(nullptr, shape).floats.value();
  }

  static void Run(const FlashShape& shape, const FlashHead& head, int64_t query_begin,
                  int64_t query_end, int64_t key_begin, int64_t key_end, float* scratch) {
    Flash flash(shape, head, query_begin, query_end, scratch);
    switch (shape.element) {
      case Element::kFloat32:
        return flash.template Run<Float32>(key_begin, key_end);
      case Element::kFloat16:
        return flash.template Run<Float16>(key_begin, key_end);
      case Element::kBFloat16:
        return flash.template Run<BFloat16>(key_begin, key_end);
    }
  }

 private:
  using Vec = typename V::Vec;
  static constexpr int64_t kLanes = V::kLanes;
  using Panels = kernels::Panels<V>;

  // With head_dim 64, a block of keys and one of values fill 64 KB of the second-level cache, a
  // panel's scores 12 KB of the first.
  static constexpr int64_t kKeyBlock = kFlashKeyBlock;

  // The layout of the scratch area; without an area, only its size. W is the width of the current
  // panel.
  struct Scratch : ScratchArea<V> {
    Scratch(float* base, const FlashShape& shape) : ScratchArea<V>(base) {
      constexpr int64_t kQueries = Panels::RoundUp(kFlashTileQueries);
      queries = this->Take(Count(kQueries) * shape.head_dim);
      outputs = this->Take(Count(kQueries) * shape.value_dim);
      maxima = this->Take(kQueries);
      sums = this->Take(kQueries);
      keys = this->Take(Count(kKeyBlock) * shape.head_dim);
      values = this->Take(Count(kKeyBlock) * shape.value_dim);
      scores = this->Take(kKeyBlock * Panels::kMaxWidth);
      decay = this->Take(Panels::kMaxWidth);
    }
    float* queries;  // panel after panel: [head_dim, W]
    float* outputs;  // panel after panel: [value_dim, W], not yet divided by the sums
    float* maxima;   // [lanes] of the scores so far
    float* sums;     // [lanes] of the weights so far
    float* keys;     // [kKeyBlock, head_dim]
    float* values;   // [kKeyBlock, value_dim]
    float* scores;   // [kKeyBlock, W], then the weights
    float* decay;    // [W], factors for earlier sums, by the block's new maxima
  };

  Flash(const FlashShape& shape, const FlashHead& head, int64_t query_begin, int64_t query_end,
        float* scratch)
      : shape_(shape),
        head_(head),
        query_begin_(query_begin),
        query_end_(query_end),
        scratch_(scratch, shape),
        softmax_(shape.scale) {}

  template <typename E>
  void Run(int64_t key_begin, int64_t key_end) {
    const int64_t queries = query_end_ - query_begin_;
    if (key_begin == 0) {
      Panels::For(queries, [&](auto vectors, int64_t lane) {
        LoadPanel<decltype(vectors)::N, E>(lane, queries - lane);
      });
    }
    for (int64_t begin = key_begin; begin < key_end; begin += kKeyBlock) {
      const int64_t count = key_end - begin < kKeyBlock ? key_end - begin : kKeyBlock;
      LoadBlock<E>(head_.key, head_.key_stride, shape_.head_dim, begin, count, scratch_.keys);
      LoadBlock<E>(head_.value, head_.value_stride, shape_.value_dim, begin, count,
                   scratch_.values);
      Panels::For(queries, [&](auto vectors, int64_t lane) {
        AttendPanel<decltype(vectors)::N>(lane, begin, count);
      });
    }
    if (key_end < FlashKeys(shape_, head_.keys, query_end_)) return;
    Panels::For(queries, [&](auto vectors, int64_t lane) {
      StorePanel<decltype(vectors)::N, E>(lane, queries - lane);
    });
  }

  template <typename E>
  static void LoadBlock(const void* rows, int64_t stride, int64_t dim, int64_t begin, int64_t count,
                        float* block) {
    const auto* source = static_cast<const typename E::Bits*>(rows) + begin * stride;
    for (int64_t j = 0; j < count; ++j) {
      LoadRow<V, E>(source + j * stride, dim, block + j * dim);
    }
  }

  // Transposes up to N vectors of queries into the panel at `lane` and resets its state.
  template <int N, typename E>
  void LoadPanel(int64_t lane, int64_t count) {
    const auto* first = static_cast<const typename E::Bits*>(head_.query) +
                        (query_begin_ + lane) * head_.query_stride;
    Panels::template Load<N, E>([&](int64_t i) { return first + i * head_.query_stride; }, count,
                                shape_.head_dim, softmax_.factor,
                                scratch_.queries + lane * shape_.head_dim);
    std::memset(scratch_.outputs + lane * shape_.value_dim, 0,
                N * kLanes * shape_.value_dim * sizeof(float));
    for (int64_t i = lane; i < lane + N * kLanes; ++i) {
      scratch_.maxima[i] = -__builtin_inff();
      scratch_.sums[i] = 0;
    }
  }

  template <int N, typename E>
  void StorePanel(int64_t lane, int64_t count) {
    auto* first =
        static_cast<typename E::Bits*>(head_.output) + (query_begin_ + lane) * head_.output_stride;
    Panels::template Store<N, E>(
        scratch_.outputs + lane * shape_.value_dim, count, shape_.value_dim,
        [&](int v, Vec x) { return V::Divide(x, V::Load(scratch_.sums + lane + v * kLanes)); },
        [&](int64_t i) { return first + i * head_.output_stride; });
  }

  template <int N>
  void AttendPanel(int64_t lane, int64_t key_begin, int64_t count) {
    constexpr int64_t kWidth = N * kLanes;
    const int64_t first_query = query_begin_ + lane;
    if (shape_.causal) {
      const int64_t visible = first_query + kWidth - key_begin;  // to the panel's last query
      if (visible <= 0) return;
      if (visible < count) count = visible;
    }
    Products<V>::template Scores<N>(scratch_.queries + lane * shape_.head_dim, scratch_.keys,
                                    shape_.head_dim, count, scratch_.scores);
    if (shape_.causal && key_begin + count - 1 > first_query) {
      HideLaterKeys<N>(first_query, key_begin, count);
    }
    OnlineSoftmax<V, N>(scratch_.scores, count, softmax_.exponent_scale, scratch_.maxima + lane,
                        scratch_.sums + lane, scratch_.decay);
    Products<V>::template AddValues<N>(scratch_.scores, scratch_.values, shape_.value_dim, count,
                                       scratch_.decay, scratch_.outputs + lane * shape_.value_dim);
  }

  // Causal: scores of keys after the query become -Inf, whose weight is exactly zero.
  template <int N>
  void HideLaterKeys(int64_t first_query, int64_t key_begin, int64_t count) {
    constexpr int64_t kWidth = N * kLanes;
    for (int64_t j = 0; j < count; ++j) {
      int64_t hidden = key_begin + j - first_query;  // lanes
      if (hidden > kWidth) hidden = kWidth;
      float* row = scratch_.scores + j * kWidth;
      for (int64_t lane = 0; lane < hidden; ++lane) row[lane] = -__builtin_inff();
    }
  }

  const FlashShape& shape_;
  const FlashHead& head_;
  const int64_t query_begin_;
  const int64_t query_end_;
  Scratch scratch_;
  const SoftmaxScale<V> softmax_;  // its sign is already in the queries
};

}  // namespace castor::kernels
