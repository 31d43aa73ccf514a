// Lloyd's algorithm on queries in the metric of their keys: the steps of QueryClustering
// (clusters.h). Distances are those of the scores that queries give the keys, up to a constant of
// each query that softmax ignores. A template over the vector type, for the reason given in
// flash.inl.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/clustered/clusters.h"
#include "engine/kernels/cpu/clustered/products.inl.h"
#include "engine/kernels/cpu/linear/panels.inl.h"
#include "engine/kernels/cpu/rows.inl.h"
#include "engine/kernels/cpu/scratch.inl.h"

namespace castor::kernels {

template <typename V>
class QuerySpace {
 public:
  static int64_t MetricFloats(int64_t head_dim) {
    return (Count(head_dim) * Count(head_dim).RoundedUp(kLanes)).value();
  }
  static int64_t MeasureScratchFloats(int64_t head_dim) {
    return MeasureScratch(nullptr, head_dim).floats.value();
  }
  static int64_t ScratchFloats(int64_t head_dim) {
    return Scratch(nullptr, head_dim).floats.value();
  }

  static void Measure(const QueryClustering& head, float* scratch) {
    ForElement<V>(head.element, [&](auto element) {
      MeasureAs<decltype(element)>(head, MeasureScratch(scratch, head.head_dim));
    });
  }

  static void Draw(const QueryClustering& head, int64_t query, int64_t cluster) {
    ForElement<V>(head.element, [&](auto element) {
      using E = decltype(element);
      LoadRow<V, E>(QueryRow<E>(head, query), head.head_dim, head.means + cluster * head.head_dim);
    });
    head.members[cluster] = 1;
  }

  static void Map(const QueryClustering& head, int64_t begin, int64_t end, float* scratch) {
    const Scratch area(scratch, head.head_dim);
    for (int64_t c = begin; c < end; c += kBlock) {
      MapBlock(head, c, end - c < kBlock ? end - c : kBlock, area);
    }
  }

  static int64_t Assign(const QueryClustering& head, int64_t begin, int64_t end, float* scratch) {
    const Scratch area(scratch, head.head_dim);
    int64_t moved = 0;
    ForElement<V>(head.element, [&](auto element) {
      for (int64_t i = begin; i < end; i += Panels::kMaxWidth) {
        const int64_t left = end - i;
        const int64_t count = left < Panels::kMaxWidth ? left : Panels::kMaxWidth;
        Panels::For(count, [&](auto vectors, int64_t) {
          moved += AssignPanel<decltype(element), decltype(vectors)::N>(head, i, count, area);
        });
      }
    });
    return moved;
  }

  static void Add(const QueryClustering& head, int64_t begin, int64_t end) {
    ForElement<V>(head.element, [&](auto element) {
      using E = decltype(element);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t next = i + kAhead < head.count ? i + kAhead : head.count - 1;
        PrefetchRow<V>(QueryRow<E>(head, next), head.head_dim);
        const int64_t label = head.labels[i];
        AddRow<V, E>(1, QueryRow<E>(head, i), head.head_dim, head.means + label * head.head_dim);
        ++head.members[label];
      }
    });
  }

 private:
  using Vec = typename V::Vec;
  using Panels = kernels::Panels<V>;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kAhead = 16;

  // Centroids at a time: their scores with a panel of queries stay in the first-level cache.
  static constexpr int64_t kBlock = 48;

  // A metric of keys below this could not be scaled up; they are all the same to every query.
  static constexpr float kLeastKey = 0x1p-120f;

  struct MeasureScratch : ScratchArea<V> {
    MeasureScratch(float* base, int64_t head_dim)
        : ScratchArea<V>(base),
          keys(this->Allocate(Count(MetricKeys(head_dim)) * head_dim)),
          mean(this->Allocate(head_dim)),
          columns(this->Allocate(Count(MetricKeys(head_dim)) * Panels::kMaxWidth)),
          zeros(this->Allocate(Panels::kMaxWidth)) {}
    float* const keys;     // [keys, head_dim]
    float* const mean;     // [head_dim]
    float* const columns;  // [keys, W]: a panel of them
    float* const zeros;    // [W]
  };

  struct Scratch : ScratchArea<V> {
    Scratch(float* base, int64_t head_dim)
        : ScratchArea<V>(base),
          panel(this->Allocate(Count(head_dim) * Panels::kMaxWidth)),
          scores(this->Allocate(kBlock * Panels::kMaxWidth)) {}
    float* const panel;   // [head_dim, W]: queries
    float* const scores;  // [centroids of a block, W]
  };

  template <typename E>
  static const typename E::Bits* QueryRow(const QueryClustering& head, int64_t i) {
    return static_cast<const typename E::Bits*>(head.query) + i * head.query_stride;
  }

  template <typename E>
  static void MeasureAs(const QueryClustering& head, const MeasureScratch& area) {
    const int64_t dim = head.head_dim;
    const int64_t most = MetricKeys(dim);
    const int64_t count = head.keys < most ? head.keys : most;
    const auto* const key = static_cast<const typename E::Bits*>(head.key);
    std::memset(area.mean, 0, dim * sizeof(float));
    for (int64_t s = 0; s < count; ++s) {
      float* const row = area.keys + s * dim;
      LoadRow<V, E>(key + s * head.keys / count * head.key_stride, dim, row);
      AddRow<V, Float32>(1, row, dim, area.mean);
    }
    Centre(dim, count, area);
    for (int64_t i = 0; i < Panels::kMaxWidth; ++i) area.zeros[i] = 0;
    Panels::For(dim, [&](auto vectors, int64_t first) {
      constexpr int N = decltype(vectors)::N;
      constexpr int64_t kWidth = N * kLanes;
      float* const panel = head.metric + first * dim;
      const int64_t used = dim - first < kWidth ? dim - first : kWidth;
      for (int64_t s = 0; s < count; ++s) {
        float* const columns = area.columns + s * kWidth;
        std::memcpy(columns, area.keys + s * dim + first, used * sizeof(float));
        for (int64_t i = used; i < kWidth; ++i) columns[i] = 0;
      }
      std::memset(panel, 0, dim * kWidth * sizeof(float));
      Products<V>::template AddValues<N>(area.columns, area.keys, dim, count, area.zeros, panel);
    });
  }

  // Subtracts the mean from the keys, whose sum `mean` is, and divides them by the greatest element
  // left. It is a common factor of all distances, and finite keys cannot make distances overflow.
  static void Centre(int64_t dim, int64_t count, const MeasureScratch& area) {
    const Vec share = V::Broadcast(1.0f / static_cast<float>(count));
    ForColumns<V>(dim, [&](int64_t e, int64_t columns) {
      const Vec sum = Elements<V, Float32>::Load(area.mean + e, columns);
      Elements<V, Float32>::Store(area.mean + e, sum * share, columns);
    });
    Vec greatest = V::Broadcast(kLeastKey);
    for (int64_t s = 0; s < count; ++s) {
      ForColumns<V>(dim, [&](int64_t e, int64_t columns) {
        float* const at = area.keys + s * dim + e;
        const Vec centred = Elements<V, Float32>::Load(at, columns) -
                            Elements<V, Float32>::Load(area.mean + e, columns);
        greatest = V::Max(V::Max(centred, V::Zero() - centred), greatest);
        Elements<V, Float32>::Store(at, centred, columns);
      });
    }
    const Vec scale = V::Broadcast(1 / V::Greatest(greatest));
    for (int64_t i = 0; i < count * dim; i += kLanes) {
      const int64_t columns = count * dim - i < kLanes ? count * dim - i : kLanes;
      const Vec centred = Elements<V, Float32>::Load(area.keys + i, columns);
      Elements<V, Float32>::Store(area.keys + i, centred * scale, columns);
    }
  }

  // Maps the clusters [first, first + count) that have members.
  static void MapBlock(const QueryClustering& head, int64_t first, int64_t count,
                       const Scratch& area) {
    const int64_t dim = head.head_dim;
    float* const means = head.means + first * dim;
    for (int64_t c = 0; c < count; ++c) {
      if (head.members[first + c] <= 1) continue;
      const Vec members = V::Broadcast(static_cast<float>(head.members[first + c]));
      ForColumns<V>(dim, [&](int64_t e, int64_t columns) {
        float* const at = means + c * dim + e;
        const Vec sum = Elements<V, Float32>::Load(at, columns);
        Elements<V, Float32>::Store(at, sum / members, columns);
      });
    }
    Panels::For(dim, [&](auto vectors, int64_t at) {
      constexpr int N = decltype(vectors)::N;
      constexpr int64_t kWidth = N * kLanes;
      Products<V>::template Scores<N>(head.metric + at * dim, means, dim, count, area.scores);
      const int64_t used = dim - at < kWidth ? dim - at : kWidth;
      for (int64_t c = 0; c < count; ++c) {
        if (head.members[first + c] == 0) continue;
        std::memcpy(head.images + (first + c) * dim + at, area.scores + c * kWidth,
                    used * sizeof(float));
      }
    });
    for (int64_t c = 0; c < count; ++c) {
      if (head.members[first + c] == 0) continue;
      const float* const image = head.images + (first + c) * dim;
      head.halves[first + c] = 0.5f * V::Sum(MultiplyRows<V>(means + c * dim, image, dim));
    }
  }

  // Labels of the queries [first, first + count): lanes hold queries.
  template <typename E, int N>
  static int64_t AssignPanel(const QueryClustering& head, int64_t first, int64_t count,
                             const Scratch& area) {
    constexpr int64_t kWidth = N * kLanes;
    const int64_t dim = head.head_dim;
    for (int64_t i = first + count; i < first + 2 * count && i < head.count; ++i) {
      PrefetchRow<V>(QueryRow<E>(head, i), dim);
    }
    Panels::template Load<N, E>([&](int64_t i) { return QueryRow<E>(head, first + i); }, count, dim,
                                1.0f, area.panel);
    Vec best[N];
    Vec label[N];
    for (int v = 0; v < N; ++v) best[v] = V::Broadcast(-__builtin_inff());
    for (int v = 0; v < N; ++v) label[v] = V::Zero();
    // Labels are floats here, which hold every one of them.
    Vec index = V::Zero();
    const Vec one = V::Broadcast(1);
    for (int64_t block = 0; block < head.clusters; block += kBlock) {
      const int64_t left = head.clusters - block;
      const int64_t centroids = left < kBlock ? left : kBlock;
      Products<V>::template Scores<N>(area.panel, head.images + block * dim, dim, centroids,
                                      area.scores);
      for (int64_t c = 0; c < centroids; ++c) {
        const Vec half = V::Broadcast(head.halves[block + c]);
#pragma GCC unroll 4
        for (int v = 0; v < N; ++v) {
          // The greater this is, the nearer is the centroid.
          const Vec score = V::Load(area.scores + c * kWidth + v * kLanes) - half;
          label[v] = V::IfGreater(score, best[v], index, label[v]);
          best[v] = V::Max(score, best[v]);
        }
        index += one;
      }
    }
    float labels[kWidth];
    for (int v = 0; v < N; ++v) V::Store(labels + v * kLanes, label[v]);
    int64_t moved = 0;
    for (int64_t i = 0; i < count; ++i) {
      const auto found = static_cast<int32_t>(labels[i]);
      moved += head.labels[first + i] != found;
      head.labels[first + i] = found;
    }
    return moved;
  }
};

}  // namespace castor::kernels
