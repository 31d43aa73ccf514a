// The kernel of flash.h, written once over the vectors of simd_*.h. Each instruction set's file
// includes this and instantiates Flash<V> with its own V, so that no function compiled for one set
// can stand in for another's.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/elements.inl.h"
#include "engine/kernels/cpu/flash.h"
#include "engine/kernels/cpu/products.inl.h"

namespace castor::kernels {

template <typename V>
class Flash {
 public:
  static int64_t ScratchFloats(const FlashShape& shape) { return Scratch(nullptr, shape).floats; }

  static void Run(const FlashShape& shape, const FlashHead& head, int64_t query_begin,
                  int64_t query_end, float* scratch) {
    switch (shape.element) {
      case Element::kFloat32:
        return Flash(shape, head, query_begin, query_end, scratch).template Run<Float32>();
      case Element::kFloat16:
        return Flash(shape, head, query_begin, query_end, scratch).template Run<Float16>();
      case Element::kBFloat16:
        return Flash(shape, head, query_begin, query_end, scratch).template Run<BFloat16>();
    }
  }

 private:
  using Vec = typename V::Vec;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kMaxVectors = 3;  // in a panel
  static constexpr int64_t kMaxWidth = kMaxVectors * kLanes;

  // Keys whose scores are in memory at a time. Part of the results' definition: sums are over
  // blocks of this size. With head_dim 64, a block of keys and one of values fill 64 KB of the
  // second-level cache, a panel's scores 12 KB of the first.
  static constexpr int64_t kKeyBlock = 128;

  static int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

  // Where things lie in the scratch area, or, without one, only how large it must be. W is the
  // width of the panel in hand.
  struct Scratch {
    Scratch(float* base, const FlashShape& shape) {
      constexpr int64_t kQueries = (kFlashTileQueries + kLanes - 1) / kLanes * kLanes;
      queries = Take(base, kQueries * shape.head_dim);
      outputs = Take(base, kQueries * shape.value_dim);
      maxima = Take(base, kQueries);
      sums = Take(base, kQueries);
      keys = Take(base, kKeyBlock * shape.head_dim);
      values = Take(base, kKeyBlock * shape.value_dim);
      scores = Take(base, kKeyBlock * kMaxWidth);
      decay = Take(base, kMaxWidth);
    }

    float* Take(float* base, int64_t count) {
      float* taken = base == nullptr ? nullptr : base + floats;
      floats += RoundUp(count, 16);
      return taken;
    }

    int64_t floats = 0;
    float* queries;  // panel after panel: [head_dim, W]
    float* outputs;  // panel after panel: [value_dim, W], not yet divided by the sums
    float* maxima;   // [lanes] of the scores so far
    float* sums;     // [lanes] of the weights so far
    float* keys;     // [kKeyBlock, head_dim]
    float* values;   // [kKeyBlock, value_dim]
    float* scores;   // [kKeyBlock, W], then the weights
    float* decay;    // [W], what the block's new maxima make of earlier sums
  };

  Flash(const FlashShape& shape, const FlashHead& head, int64_t query_begin, int64_t query_end,
        float* scratch)
      : shape_(shape),
        head_(head),
        query_begin_(query_begin),
        query_end_(query_end),
        scratch_(scratch, shape) {
    // Scores are compared unscaled, so a negative scale becomes the sign of the queries. With scale
    // zero, all scores are.
    const double magnitude = shape.scale < 0 ? -shape.scale : shape.scale;
    constexpr double kLog2E = 1.4426950408889634;
    constexpr double kLargest = 3.4028234663852886e38;
    const double exponent = magnitude * kLog2E;
    query_factor_ = shape.scale < 0 ? -1.0f : (shape.scale > 0 ? 1.0f : 0.0f);
    exponent_scale_ =
        shape.scale == 0 ? 1.0f : static_cast<float>(exponent < kLargest ? exponent : kLargest);
  }

  template <typename E>
  void Run() {
    const int64_t queries = query_end_ - query_begin_;
    const int64_t vectors = (queries + kLanes - 1) / kLanes;
    const int64_t panels = (vectors + kMaxVectors - 1) / kMaxVectors;
    const auto first_lane = [&](int64_t panel) { return vectors * panel / panels * kLanes; };

    for (int64_t p = 0; p < panels; ++p) LoadPanel<E>(first_lane(p), first_lane(p + 1));
    int64_t keys = head_.keys;
    if (shape_.causal && query_end_ < keys) keys = query_end_;
    for (int64_t begin = 0; begin < keys; begin += kKeyBlock) {
      const int64_t count = keys - begin < kKeyBlock ? keys - begin : kKeyBlock;
      LoadBlock<E>(head_.key, head_.key_stride, shape_.head_dim, begin, count, scratch_.keys);
      LoadBlock<E>(head_.value, head_.value_stride, shape_.value_dim, begin, count,
                   scratch_.values);
      for (int64_t p = 0; p < panels; ++p) {
        const int64_t lane = first_lane(p);
        switch ((first_lane(p + 1) - lane) / kLanes) {
          case 1:
            AttendPanel<1>(lane, begin, count);
            break;
          case 2:
            AttendPanel<2>(lane, begin, count);
            break;
          case 3:
            AttendPanel<3>(lane, begin, count);
            break;
        }
      }
    }
    for (int64_t p = 0; p < panels; ++p) StorePanel<E>(first_lane(p), first_lane(p + 1));
  }

  template <typename E>
  static void LoadBlock(const void* rows, int64_t stride, int64_t dim, int64_t begin, int64_t count,
                        float* block) {
    const auto* source = static_cast<const typename E::Bits*>(rows) + begin * stride;
    for (int64_t j = 0; j < count; ++j) {
      Elements<V, E>::LoadRow(source + j * stride, dim, block + j * dim);
    }
  }

  // Transposes the queries of lanes [begin, end) into their panel and resets its state. Lanes
  // beyond the last query hold zeros.
  template <typename E>
  void LoadPanel(int64_t begin, int64_t end) {
    const int64_t width = end - begin;
    float* panel = scratch_.queries + begin * shape_.head_dim;
    const auto* query = static_cast<const typename E::Bits*>(head_.query);
    const Vec factor = V::Broadcast(query_factor_);
    for (int64_t lane = begin; lane < end; lane += kLanes) {
      for (int64_t e = 0; e < shape_.head_dim; e += kLanes) {
        const int64_t count = shape_.head_dim - e < kLanes ? shape_.head_dim - e : kLanes;
        Vec rows[kLanes];
        for (int64_t i = 0; i < kLanes; ++i) {
          const int64_t row = query_begin_ + lane + i;
          rows[i] = row < query_end_
                        ? V::Multiply(factor, Elements<V, E>::Load(
                                                  query + row * head_.query_stride + e, count))
                        : V::Zero();
        }
        V::Transpose(rows);
        for (int64_t i = 0; i < count; ++i) {
          V::Store(panel + (e + i) * width + (lane - begin), rows[i]);
        }
      }
    }
    std::memset(scratch_.outputs + begin * shape_.value_dim, 0,
                width * shape_.value_dim * sizeof(float));
    for (int64_t lane = begin; lane < end; ++lane) {
      scratch_.maxima[lane] = -__builtin_inff();
      scratch_.sums[lane] = 0;
    }
  }

  template <typename E>
  void StorePanel(int64_t begin, int64_t end) {
    const int64_t width = end - begin;
    const float* panel = scratch_.outputs + begin * shape_.value_dim;
    auto* output = static_cast<typename E::Bits*>(head_.output);
    for (int64_t lane = begin; lane < end; lane += kLanes) {
      const Vec sum = V::Load(scratch_.sums + lane);
      for (int64_t e = 0; e < shape_.value_dim; e += kLanes) {
        const int64_t count = shape_.value_dim - e < kLanes ? shape_.value_dim - e : kLanes;
        Vec rows[kLanes];
        for (int64_t i = 0; i < kLanes; ++i) {
          rows[i] = i < count ? V::Divide(V::Load(panel + (e + i) * width + (lane - begin)), sum)
                              : V::Zero();
        }
        V::Transpose(rows);
        for (int64_t i = 0; i < kLanes; ++i) {
          const int64_t row = query_begin_ + lane + i;
          if (row >= query_end_) break;
          Elements<V, E>::Store(output + row * head_.output_stride + e, rows[i], count);
        }
      }
    }
  }

  // One block of keys for the panel of N vectors that starts at `lane`.
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
    Weights<N>(scratch_.maxima + lane, scratch_.sums + lane, count);
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

  // Scores become weights exp(scale * (score - maximum)); maxima, sums and decay follow.
  template <int N>
  void Weights(float* maxima, float* sums, int64_t count) {
    constexpr int64_t kWidth = N * kLanes;
    const Vec scale = V::Broadcast(exponent_scale_);
    for (int v = 0; v < N; ++v) {
      float* scores = scratch_.scores + v * kLanes;
      const Vec before = V::Load(maxima + v * kLanes);
      Vec maximum = before;
      for (int64_t j = 0; j < count; ++j) {
        maximum = V::Max(V::Load(scores + j * kWidth), maximum);
      }
      Vec sum = V::Zero();
      for (int64_t j = 0; j < count; ++j) {
        const Vec score = V::Load(scores + j * kWidth);
        const Vec weight = Exp2<V>(V::Multiply(V::Subtract(score, maximum), scale));
        V::Store(scores + j * kWidth, weight);
        sum = V::Add(sum, weight);
      }
      const Vec decay = Exp2<V>(V::Multiply(V::Subtract(before, maximum), scale));
      V::Store(scratch_.decay + v * kLanes, decay);
      V::Store(maxima + v * kLanes, maximum);
      V::Store(sums + v * kLanes, V::MultiplyAdd(V::Load(sums + v * kLanes), decay, sum));
    }
  }

  const FlashShape& shape_;
  const FlashHead& head_;
  const int64_t query_begin_;
  const int64_t query_end_;
  Scratch scratch_;
  float query_factor_;    // -1, 0 or 1
  float exponent_scale_;  // |scale| log2(e)
};

}  // namespace castor::kernels
