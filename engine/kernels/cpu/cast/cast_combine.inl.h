// The two ends of CAST that run over all tokens: affinities (steps 1 and 2) and the combination
// (step 6), see cast.h. Both begin with the scores between a panel of tokens and the surrogates.
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
class CastCombine {
 public:
  static int64_t ScratchFloats(const CastShape& shape) {
    return Scratch(shape, nullptr).floats.value();
  }

  CastCombine(const CastShape& shape, const CastSequence& sequence, float* scratch)
      : shape_(shape), sequence_(sequence), scratch_(shape, scratch) {
    // Scores are compared before they are scaled, so a negative scale becomes the tokens' sign.
    sign_ = shape.scale < 0 ? -1.0f : (shape.scale > 0 ? 1.0f : 0.0f);
    scale_ = __builtin_fabs(shape.scale) * (shape.laplace ? kLaplaceScale : kLog2E);
  }

  template <typename E>
  static void PackSurrogates(const CastShape& shape, const void* surrogates, float* packed) {
    const auto* source = static_cast<const typename E::Bits*>(surrogates);
    for (int64_t c = 0; c < shape.clusters; ++c) {
      for (int64_t h = 0; h < shape.heads; ++h, source += shape.head_dim) {
        LoadRow<V, E>(source, shape.head_dim, packed + (h * shape.clusters + c) * shape.head_dim);
      }
    }
  }

  template <typename E>
  void Affinities(int64_t head_begin, int64_t head_end, int64_t begin, int64_t end,
                  float* affinities, int64_t stride) {
    Panels::For(end - begin, [&](auto vectors, int64_t lane) {
      constexpr int N = decltype(vectors)::N;
      const int64_t count = LaneCount(N, begin + lane, end);
      std::memset(scratch_.total, 0, shape_.clusters * N * kLanes * sizeof(float));
      for (int64_t h = head_begin; h < head_end; ++h) {
        PrefetchRows<E>(sequence_.key, sequence_.key_stride, h / shape_.group, begin + lane, count);
        AddAffinities<N, E>(h, /*by_query=*/true, begin + lane, count);
        if (h + 1 < head_end) {
          PrefetchRows<E>(sequence_.query, sequence_.query_stride, h + 1, begin + lane, count);
        } else {  // the next panel
          PrefetchRows<E>(sequence_.query, sequence_.query_stride, head_begin, begin + lane + count,
                          LaneCount(N, begin + lane + count, end));
        }
        AddAffinities<N, E>(h, /*by_query=*/false, begin + lane, count);
      }
      for (int64_t c = 0; c < shape_.clusters; ++c) {
        std::memcpy(affinities + c * stride + begin + lane, scratch_.total + c * N * kLanes,
                    count * sizeof(float));
      }
    });
  }

  template <typename E>
  void Combine(int64_t head, const float* summaries, const CastOwnClusters& own, int64_t begin,
               int64_t end) {
    Panels::For(end - begin, [&](auto vectors, int64_t lane) {
      constexpr int N = decltype(vectors)::N;
      const int64_t count = LaneCount(N, begin + lane, end);
      PrefetchRows<E>(sequence_.query, sequence_.query_stride, head, begin + lane + count,
                      LaneCount(N, begin + lane + count, end));
      CombinePanel<N, E>(head, summaries, own, begin + lane, count);
    });
  }

 private:
  using Vec = typename V::Vec;
  using Panels = kernels::Panels<V>;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kClusterBlock = 128;  // whose summaries are added in one sum

  // W is the width of the current panel.
  struct Scratch : ScratchArea<V> {
    Scratch(const CastShape& shape, float* base) : ScratchArea<V>(base) {
      panel = this->Allocate(Count(shape.head_dim) * Panels::kMaxWidth);
      scores = this->Allocate(Count(shape.clusters) * Panels::kMaxWidth);
      total = this->Allocate(Count(shape.clusters) * Panels::kMaxWidth);
      outputs = this->Allocate(Count(shape.value_dim) * Panels::kMaxWidth);
      rows = this->Allocate(Count(shape.value_dim) * Panels::kMaxWidth);
      lanes = this->Allocate(Panels::kMaxWidth);
    }
    float* panel;    // [head_dim, W] queries or keys
    float* scores;   // [clusters, W], then the weights
    float* total;    // [clusters, W] affinities, or the weights of the tokens' own clusters
    float* outputs;  // [value_dim, W]
    float* rows;     // [W, value_dim]
    float* lanes;    // [W]
  };

  static int64_t LaneCount(int64_t vectors, int64_t begin, int64_t end) {
    return end - begin < vectors * kLanes ? end - begin : vectors * kLanes;
  }

  template <typename E>
  void PrefetchRows(const void* tokens, int64_t stride, int64_t head, int64_t begin,
                    int64_t count) const {
    const auto* first =
        static_cast<const typename E::Bits*>(tokens) + begin * stride + head * shape_.head_dim;
    for (int64_t i = 0; i < count; ++i) PrefetchRowFar<V>(first + i * stride, shape_.head_dim);
  }

  // scores [clusters, N lanes] between `count` tokens' rows, the `row`-th of each, and a head's
  // surrogates.
  template <int N, typename E>
  void Scores(const void* tokens, int64_t stride, int64_t row, int64_t head, int64_t begin,
              int64_t count) {
    const auto* first =
        static_cast<const typename E::Bits*>(tokens) + begin * stride + row * shape_.head_dim;
    Panels::template Load<N, E>([=](int64_t lane) { return first + lane * stride; }, count,
                                shape_.head_dim, sign_, scratch_.panel);
    Products<V>::template Scores<N>(scratch_.panel,
                                    sequence_.surrogates + head * shape_.clusters * shape_.head_dim,
                                    shape_.head_dim, shape_.clusters, scratch_.scores);
  }

  // Applies f over the clusters. The caller still has to multiply by `factors`.
  template <int N>
  void Function(const Vec scales[N], Vec factors[N]) {
    if (shape_.laplace) {
      LaplaceDown<V, N>(scratch_.scores, shape_.clusters, scales);
      for (int v = 0; v < N; ++v) factors[v] = V::Broadcast(1.0f);
      return;
    }
    Vec maxima[N];
    Vec sums[N];
    for (int v = 0; v < N; ++v) maxima[v] = V::Broadcast(-__builtin_inff());
    MaximaDown<V, N>(scratch_.scores, shape_.clusters, maxima);
    WeightsDown<V, N>(scratch_.scores, shape_.clusters, scales, maxima, sums);
    for (int v = 0; v < N; ++v) factors[v] = V::Broadcast(1.0f) / sums[v];
  }

  // total += share * f_c(scale * row . surrogates).
  template <int N, typename E>
  void AddAffinities(int64_t head, bool by_query, int64_t begin, int64_t count) {
    if (by_query) {
      Scores<N, E>(sequence_.query, sequence_.query_stride, head, head, begin, count);
    } else {
      Scores<N, E>(sequence_.key, sequence_.key_stride, head / shape_.group, head, begin, count);
    }
    Vec scales[N];
    Vec factors[N];
    for (int v = 0; v < N; ++v) scales[v] = V::Broadcast(FiniteFactor<V>(scale_));
    Function<N>(scales, factors);
    LoadLanes(sequence_.query_share + begin, count, N);
    for (int v = 0; v < N; ++v) {
      const Vec share = V::Load(scratch_.lanes + v * kLanes);
      factors[v] = factors[v] * (by_query ? share : (V::Broadcast(1.0f) - share));
    }
    for (int64_t j = 0; j < shape_.clusters; ++j) {
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        const int64_t at = (j * N + v) * kLanes;
        V::Store(scratch_.total + at, V::MultiplyAdd(V::Load(scratch_.scores + at), factors[v],
                                                     V::Load(scratch_.total + at)));
      }
    }
  }

  template <int N, typename E>
  void CombinePanel(int64_t head, const float* summaries, const CastOwnClusters& own, int64_t begin,
                    int64_t count) {
    Scores<N, E>(sequence_.query, sequence_.query_stride, head, head, begin, count);
    LoadLanes(sequence_.query_temperature + begin, count, N);
    for (int64_t i = 0; i < N * kLanes; ++i) {
      scratch_.lanes[i] = FiniteFactor<V>(double{scratch_.lanes[i]} * scale_);
    }
    Vec scales[N];
    Vec factors[N];
    for (int v = 0; v < N; ++v) scales[v] = V::Load(scratch_.lanes + v * kLanes);
    Function<N>(scales, factors);
    for (int v = 0; v < N; ++v) V::Store(scratch_.lanes + v * kLanes, factors[v]);

    // Moves the weights of a token's own clusters to `total`: the token gets rows from inside,
    // which are prefetched here, and not their summaries.
    float* own_weight = scratch_.total;
    ForOwn(own, begin, count, [&](int64_t c, int64_t lane, int64_t row) {
      PrefetchRowFar<V>(own.inside + row * shape_.value_dim, shape_.value_dim);
      float* const weight = scratch_.scores + c * N * kLanes + lane;
      *own_weight++ = *weight * scratch_.lanes[lane];
      *weight = 0;
    });
    AddSummaries<N>(summaries);
    Panels::template Store<N, Float32>(
        scratch_.outputs, count, shape_.value_dim, [&](int v, Vec x) { return x * factors[v]; },
        [&](int64_t i) { return scratch_.rows + i * shape_.value_dim; });
    own_weight = scratch_.total;
    ForOwn(own, begin, count, [&](int64_t, int64_t lane, int64_t row) {
      AddRow<V, Float32>(*own_weight++, own.inside + row * shape_.value_dim, shape_.value_dim,
                         scratch_.rows + lane * shape_.value_dim);
    });
    auto* output = static_cast<typename E::Bits*>(sequence_.output) +
                   begin * sequence_.output_stride + head * shape_.value_dim;
    for (int64_t i = 0; i < count; ++i) {
      StoreRow<V, E>(scratch_.rows + i * shape_.value_dim, shape_.value_dim,
                     output + i * sequence_.output_stride);
    }
  }

  // outputs = the sum over clusters of weights times summaries.
  template <int N>
  void AddSummaries(const float* summaries) {
    float keep[Panels::kMaxWidth];
    for (float& factor : keep) factor = 1;
    std::memset(scratch_.outputs, 0, shape_.value_dim * N * kLanes * sizeof(float));
    for (int64_t c = 0; c < shape_.clusters; c += kClusterBlock) {
      const int64_t left = shape_.clusters - c;
      const int64_t rows = left < kClusterBlock ? left : kClusterBlock;
      Products<V>::template AddValues<N>(scratch_.scores + c * N * kLanes,
                                         summaries + c * shape_.value_dim, shape_.value_dim, rows,
                                         keep, scratch_.outputs);
    }
  }

  // Calls f(cluster, lane, row of `inside`) for each token of the panel and each cluster it is in.
  template <typename F>
  void ForOwn(const CastOwnClusters& own, int64_t begin, int64_t count, F f) const {
    for (int64_t c = 0; c < shape_.clusters; ++c) {
      int64_t n = own.begin[c];
      while (n < own.end[c] && own.members[n] < begin) ++n;
      for (; n < own.end[c] && own.members[n] < begin + count; ++n) {
        f(c, own.members[n] - begin, own.first_row[c] + n);
      }
    }
  }

  // Per-token values for the panel's lanes; zeros for lanes from `count` on.
  void LoadLanes(const float* of_tokens, int64_t count, int64_t vectors) {
    for (int64_t i = 0; i < vectors * kLanes; ++i) {
      scratch_.lanes[i] = i < count ? of_tokens[i] : 0.0f;
    }
  }

  const CastShape& shape_;
  const CastSequence& sequence_;
  const Scratch scratch_;
  float sign_;    // -1, 0 or 1
  double scale_;  // |scale| times log2(e) or kLaplaceScale
};

}  // namespace castor::kernels
