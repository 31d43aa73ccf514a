// Attention of centroids for their members: the last stage of clusters.h, written once over the
// vectors of bits_*.h. Lanes hold centroids, as they hold queries in flash.inl.h, and keys go by in
// spans with an online softmax.
//
// Improved clustered attention keeps each centroid's top keys (top_keys.inl.h) out of its sums, and
// adds those that turn out not to be top keys later on. So the rest of the row is a sum of what
// belongs to it, never a difference, whatever share of the mass the top keys have.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/clusters.h"
#include "engine/kernels/cpu/elements.inl.h"
#include "engine/kernels/cpu/products.inl.h"
#include "engine/kernels/cpu/refine.inl.h"
#include "engine/kernels/cpu/top_keys.inl.h"

namespace castor::kernels {

template <typename V>
class Centroids {
 public:
  static int64_t ScratchFloats(const CentroidShape& shape) {
    return Scratch(nullptr, shape).floats;
  }

  static void Run(const CentroidShape& shape, const CentroidTile& tile, float* scratch) {
    switch (shape.element) {
      case Element::kFloat32:
        return Centroids(shape, tile, scratch).template Run<Float32>();
      case Element::kFloat16:
        return Centroids(shape, tile, scratch).template Run<Float16>();
      case Element::kBFloat16:
        return Centroids(shape, tile, scratch).template Run<BFloat16>();
    }
  }

 private:
  using Vec = typename V::Vec;
  using Top = TopKeys<V>;
  static constexpr int64_t kLanes = V::kLanes;
  static constexpr int64_t kMaxVectors = 3;  // in a panel
  static constexpr int64_t kMaxWidth = kMaxVectors * kLanes;
  static constexpr int64_t kTile = (kMostCentroids + kLanes - 1) / kLanes * kLanes;
  static constexpr float kLowest = -3.4028234663852886e38f;

  // Sums over values are made of this many keys at a time, as in flash.inl.h.
  static constexpr int64_t kKeyBlock = 128;
  // Members whose queries are summed up before the sum joins the total.
  static constexpr int64_t kMemberBlock = 64;

  // Keys whose scores are in memory at a time: to find top keys, as many as the second-level cache
  // takes, because the first span's are selected at once.
  static int64_t Span(const CentroidShape& shape) {
    if (shape.topk == 0) return kKeyBlock;
    const int64_t span = (int64_t{1} << 17) / (shape.head_dim + shape.value_dim);
    if (span >= 1024) return 1024;
    return span < kKeyBlock ? kKeyBlock : span / kKeyBlock * kKeyBlock;
  }

  struct Scratch {
    Scratch(float* base, const CentroidShape& shape) {
      const int64_t span = Span(shape);
      queries = Take(base, kTile * shape.head_dim);
      outputs = Take(base, kTile * shape.value_dim);
      rows = Take(base, kTile * shape.value_dim);
      maxima = Take(base, kTile);
      sums = Take(base, kTile);
      keys = Take(base, span * shape.head_dim);
      values = Take(base, span * shape.value_dim);
      scores = Take(base, span * kMaxWidth);
      decay = Take(base, 2 * kMaxWidth);
      means = Take(base, (kLanes + 1) * shape.head_dim);
      if (shape.topk == 0) return;
      late = Take(base, kTile * shape.value_dim);
      late_maxima = Take(base, kTile);
      late_sums = Take(base, kTile);
      top = Take(base, Top::ScratchFloats(kTile, shape.topk, span));
      refine = Take(base, Refine<V>::ScratchFloats(shape));
    }

    float* Take(float* base, int64_t count) {
      float* taken = base == nullptr ? nullptr : base + floats;
      floats += (count + 15) / 16 * 16;
      return taken;
    }

    int64_t floats = 0;
    float* queries;  // panel after panel: [head_dim, W], the means
    float* outputs;  // panel after panel: [value_dim, W], not yet divided by the sums
    float* rows;     // [centroids, value_dim]: what members share
    float* maxima;   // [lanes] of the scores so far
    float* sums;     // [lanes] of the weights so far
    float* keys;     // [span, head_dim]
    float* values;   // [span, value_dim]
    float* scores;   // [span, W], then the weights
    float* decay;    // [W], what the span's new maxima make of earlier sums; then [W] ones
    float* means;    // [kLanes, head_dim] and a block's sum [head_dim]
    // Only to refine rows. What left the heaps again:
    float* late = nullptr;         // [lanes, value_dim], sums of weights times values
    float* late_maxima = nullptr;  // [lanes]
    float* late_sums = nullptr;    // [lanes]
    float* top = nullptr;
    float* refine = nullptr;
  };

  Centroids(const CentroidShape& shape, const CentroidTile& tile, float* scratch)
      : shape_(shape),
        tile_(tile),
        scratch_(scratch, shape),
        wanted_(shape.topk < tile.keys ? shape.topk : tile.keys),
        top_(scratch_.top, kTile, wanted_, Span(shape)),
        softmax_(shape.scale) {}

  template <typename E>
  void Run() {
    const int64_t vectors = (tile_.clusters + kLanes - 1) / kLanes;
    const int64_t panels = (vectors + kMaxVectors - 1) / kMaxVectors;
    const auto first_lane = [&](int64_t panel) { return vectors * panel / panels * kLanes; };

    for (int64_t p = 0; p < panels; ++p) LoadPanel<E>(first_lane(p), first_lane(p + 1));
    if (wanted_ != 0) top_.Reset(vectors * kLanes);
    const int64_t span = Span(shape_);
    for (int64_t begin = 0; begin < tile_.keys; begin += span) {
      const int64_t count = tile_.keys - begin < span ? tile_.keys - begin : span;
      LoadSpan<E>(tile_.key, tile_.key_stride, shape_.head_dim, begin, count, scratch_.keys);
      LoadSpan<E>(tile_.value, tile_.value_stride, shape_.value_dim, begin, count, scratch_.values);
      for (int64_t p = 0; p < panels; ++p) {
        const int64_t lane = first_lane(p);
        switch ((first_lane(p + 1) - lane) / kLanes) {
          case 1:
            AttendPanel<E, 1>(lane, begin, count);
            break;
          case 2:
            AttendPanel<E, 2>(lane, begin, count);
            break;
          case 3:
            AttendPanel<E, 3>(lane, begin, count);
            break;
        }
      }
    }
    for (int64_t p = 0; p < panels; ++p) StorePanel(first_lane(p), first_lane(p + 1));
    if (wanted_ == 0) {
      for (int64_t c = 0; c < tile_.clusters; ++c) ShareRow<E>(c);
    } else {
      RefineRows<E>();
    }
  }

  template <typename E>
  static void LoadSpan(const void* rows, int64_t stride, int64_t dim, int64_t begin, int64_t count,
                       float* span) {
    const auto* source = static_cast<const typename E::Bits*>(rows) + begin * stride;
    constexpr int64_t kAhead = 16;
    for (int64_t j = 0; j < count; ++j) {
      PrefetchRow<V, E>(source + (j + kAhead < count ? j + kAhead : j) * stride, dim);
      ForColumns(dim, [&](int64_t e, int64_t columns) {
        const Vec row = Elements<V, E>::Load(source + j * stride + e, columns);
        Elements<V, Float32>::Store(span + j * dim + e, row, columns);
      });
    }
  }

  // The mean query of cluster c.
  template <typename E>
  void Mean(int64_t c, float* mean) {
    const auto* query = static_cast<const typename E::Bits*>(tile_.query);
    const int64_t dim = shape_.head_dim;
    const int64_t begin = tile_.begin[c];
    const int64_t end = tile_.begin[c + 1];
    const int64_t last = tile_.begin[tile_.clusters];
    float* const block = scratch_.means + kLanes * dim;
    std::memset(mean, 0, dim * sizeof(float));
    for (int64_t first = begin; first < end; first += kMemberBlock) {
      const int64_t after = end - first < kMemberBlock ? end : first + kMemberBlock;
      std::memset(block, 0, dim * sizeof(float));
      for (int64_t i = first; i < after; ++i) {
        const int64_t next = i + 8 < last ? i + 8 : last - 1;
        PrefetchRow<V, E>(query + tile_.order[next] * tile_.query_stride, dim);
        const auto* row = query + tile_.order[i] * tile_.query_stride;
        ForColumns(dim, [&](int64_t e, int64_t count) {
          AddTo(block + e, Elements<V, E>::Load(row + e, count), count);
        });
      }
      ForColumns(dim, [&](int64_t e, int64_t count) {
        AddTo(mean + e, Elements<V, Float32>::Load(block + e, count), count);
      });
    }
    const Vec members = V::Broadcast(static_cast<float>(end - begin));
    ForColumns(dim, [&](int64_t e, int64_t count) {
      const Vec sum = Elements<V, Float32>::Load(mean + e, count);
      Elements<V, Float32>::Store(mean + e, V::Divide(sum, members), count);
    });
  }

  static void AddTo(float* sums, Vec x, int64_t count) {
    const Vec sum = Elements<V, Float32>::Load(sums, count);
    Elements<V, Float32>::Store(sums, V::Add(sum, x), count);
  }

  // Transposes the means of lanes [begin, end) into their panel and resets its state. Lanes beyond
  // the last centroid hold zeros.
  template <typename E>
  void LoadPanel(int64_t begin, int64_t end) {
    const int64_t width = end - begin;
    float* panel = scratch_.queries + begin * shape_.head_dim;
    for (int64_t lane = begin; lane < end; lane += kLanes) {
      for (int64_t i = 0; i < kLanes && lane + i < tile_.clusters; ++i) {
        Mean<E>(lane + i, scratch_.means + i * shape_.head_dim);
      }
      ForColumns(shape_.head_dim, [&](int64_t e, int64_t count) {
        Vec rows[kLanes];
        for (int64_t i = 0; i < kLanes; ++i) {
          rows[i] = lane + i < tile_.clusters ? Elements<V, Float32>::Load(
                                                    scratch_.means + i * shape_.head_dim + e, count)
                                              : V::Zero();
        }
        V::Transpose(rows);
        for (int64_t i = 0; i < count; ++i) {
          V::Store(panel + (e + i) * width + (lane - begin), rows[i]);
        }
      });
    }
    std::memset(scratch_.outputs + begin * shape_.value_dim, 0,
                width * shape_.value_dim * sizeof(float));
    for (int64_t lane = begin; lane < end; ++lane) {
      scratch_.maxima[lane] = kLowest;
      scratch_.sums[lane] = 0;
    }
    if (wanted_ == 0) return;
    std::memset(scratch_.late + begin * shape_.value_dim, 0,
                width * shape_.value_dim * sizeof(float));
    for (int64_t lane = begin; lane < end; ++lane) {
      scratch_.late_maxima[lane] = kLowest;
      scratch_.late_sums[lane] = 0;
    }
  }

  template <typename E, int N>
  void AttendPanel(int64_t lane, int64_t begin, int64_t count) {
    constexpr int64_t kWidth = N * kLanes;
    Products<V>::template Scores<N>(scratch_.queries + lane * shape_.head_dim, scratch_.keys,
                                    shape_.head_dim, count, scratch_.scores);
    if (wanted_ != 0) {
      for (int v = 0; v < N; ++v) FindTop<E>(lane + v * kLanes, v * kLanes, kWidth, begin, count);
    }
    if (softmax_.factor != 1) {
      // Hidden scores stay -Inf, or else the sign of the scale would make them the greatest.
      const Vec factor = V::Broadcast(softmax_.factor);
      for (int64_t i = 0; i < count * kWidth; i += kLanes) {
        V::Store(scratch_.scores + i, V::Multiply(factor, V::Load(scratch_.scores + i)));
      }
    }
    if (wanted_ != 0) {
      for (int v = 0; v < N; ++v) HideTop(lane + v * kLanes, v * kLanes, kWidth, begin);
    }
    Weights<N>(scratch_.maxima + lane, scratch_.sums + lane, count);
    float* const outputs = scratch_.outputs + lane * shape_.value_dim;
    for (int64_t j = 0; j < count; j += kKeyBlock) {
      const int64_t keys = count - j < kKeyBlock ? count - j : kKeyBlock;
      Products<V>::template AddValues<N>(scratch_.scores + j * kWidth,
                                         scratch_.values + j * shape_.value_dim, shape_.value_dim,
                                         keys, j == 0 ? scratch_.decay : Ones<N>(), outputs);
    }
  }

  template <int N>
  const float* Ones() {
    float* const ones = scratch_.decay + kMaxWidth;
    for (int v = 0; v < N; ++v) V::Store(ones + v * kLanes, V::Broadcast(1));
    return ones;
  }

  // Sifts the scores of one vector of lanes, the panel's from `column` on.
  template <typename E>
  void FindTop(int64_t lane, int64_t column, int64_t width, int64_t begin, int64_t count) {
    const int64_t left = tile_.clusters - lane;
    const int64_t used = left < kLanes ? left : kLanes;
    if (used <= 0) return;
    const float* const scores = scratch_.scores + column;
    hidden_[lane / kLanes] = begin == 0 ? ~uint32_t{0} : 0;
    if (begin == 0) return top_.TakeFirst(scores, count, width, lane, used);
    if (begin == Span(shape_)) top_.MakeHeaps(lane, used);
    top_.Take(
        scores, begin, count, width, lane, used,
        [&](int64_t of, uint64_t entry) {
          // What came in this very span is still among the scores.
          if (Top::KeyOf(entry) < begin) Postpone<E>(of, entry);
        },
        [&](int64_t of) { hidden_[lane / kLanes] |= uint32_t{1} << (of - lane); });
    AddPostponed<E>();
  }

  // What left a heap waits until its value, asked for here, has come.
  template <typename E>
  void Postpone(int64_t lane, uint64_t entry) {
    if (postponed_count_ == kMostPostponed) AddPostponed<E>();
    postponed_[postponed_count_++] = {lane, entry};
    const auto* value = static_cast<const typename E::Bits*>(tile_.value);
    PrefetchRow<V, E>(value + Top::KeyOf(entry) * tile_.value_stride, shape_.value_dim);
  }

  template <typename E>
  void AddPostponed() {
    for (int64_t n = 0; n < postponed_count_; ++n) {
      AddLate<E>(postponed_[n].lane, postponed_[n].entry);
    }
    postponed_count_ = 0;
  }

  // Gives the top keys of this span no weight.
  void HideTop(int64_t lane, int64_t column, int64_t width, int64_t begin) {
    for (int64_t i = 0; i < kLanes && lane + i < tile_.clusters; ++i) {
      if ((hidden_[lane / kLanes] >> i & 1) == 0) continue;
      const uint64_t* const entries = top_.entries(lane + i);
      for (int64_t n = 0; n < top_.size(lane + i); ++n) {
        const int64_t j = Top::KeyOf(entries[n]) - begin;
        if (j >= 0) scratch_.scores[j * width + column + i] = -__builtin_inff();
      }
    }
  }

  // Adds a key that is no longer a top key of centroid `lane`.
  template <typename E>
  void AddLate(int64_t lane, uint64_t entry) {
    const float score = softmax_.factor * Top::ScoreOf(entry);
    float& maximum = scratch_.late_maxima[lane];
    float& sum = scratch_.late_sums[lane];
    float* const late = scratch_.late + lane * shape_.value_dim;
    const auto* value =
        static_cast<const typename E::Bits*>(tile_.value) + Top::KeyOf(entry) * tile_.value_stride;
    float kept = 1;
    float weight = 1;
    if (score > maximum) {
      kept = softmax_.Weight(maximum, score);
      maximum = score;
    } else {
      weight = softmax_.Weight(score, maximum);
    }
    sum = kept * sum + weight;
    ForColumns(shape_.value_dim, [&](int64_t e, int64_t count) {
      const Vec before = Elements<V, Float32>::Load(late + e, count);
      const Vec row = Elements<V, E>::Load(value + e, count);
      const Vec after =
          V::MultiplyAdd(V::Broadcast(weight), row, V::Multiply(V::Broadcast(kept), before));
      Elements<V, Float32>::Store(late + e, after, count);
    });
  }

  // Scores become weights exp(scale * (score - maximum)); maxima, sums and decay follow.
  template <int N>
  void Weights(float* maxima, float* sums, int64_t count) {
    constexpr int64_t kWidth = N * kLanes;
    const Vec scale = V::Broadcast(softmax_.exponent_scale);
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

  // Transposes a panel's outputs into rows, divided by their sums unless they wait for refinement.
  void StorePanel(int64_t begin, int64_t end) {
    const int64_t width = end - begin;
    const float* panel = scratch_.outputs + begin * shape_.value_dim;
    for (int64_t lane = begin; lane < end; lane += kLanes) {
      const Vec sum = wanted_ == 0 ? V::Load(scratch_.sums + lane) : V::Broadcast(1);
      ForColumns(shape_.value_dim, [&](int64_t e, int64_t count) {
        Vec rows[kLanes];
        for (int64_t i = 0; i < kLanes; ++i) {
          rows[i] = i < count ? V::Divide(V::Load(panel + (e + i) * width + (lane - begin)), sum)
                              : V::Zero();
        }
        V::Transpose(rows);
        for (int64_t i = 0; i < kLanes && lane + i < tile_.clusters; ++i) {
          Elements<V, Float32>::Store(scratch_.rows + (lane + i) * shape_.value_dim + e, rows[i],
                                      count);
        }
      });
    }
  }

  // Gives every member of cluster c its centroid's row.
  template <typename E>
  void ShareRow(int64_t c) {
    using Element = typename E::Bits;
    float* const row = scratch_.rows + c * shape_.value_dim;
    auto* const output = static_cast<Element*>(tile_.output);
    if constexpr (sizeof(Element) == sizeof(float)) {
      const int64_t last = tile_.begin[tile_.clusters] - 1;
      for (int64_t i = tile_.begin[c]; i < tile_.begin[c + 1]; ++i) {
        const int64_t next = i + 16 < last ? i + 16 : last;
        PrefetchRow<V, E>(output + tile_.order[next] * tile_.output_stride, shape_.value_dim);
        float* const to = output + tile_.order[i] * tile_.output_stride;
        ForColumns(shape_.value_dim, [&](int64_t e, int64_t count) {
          Elements<V, E>::Store(to + e, Elements<V, E>::Load(row + e, count), count);
        });
      }
    } else {
      // Rounded once: the narrow elements fit where the floats were, behind those yet to be read.
      auto* const elements = reinterpret_cast<Element*>(row);
      ForColumns(shape_.value_dim, [&](int64_t e, int64_t count) {
        Elements<V, E>::Store(elements + e, Elements<V, Float32>::Load(row + e, count), count);
      });
      for (int64_t i = tile_.begin[c]; i < tile_.begin[c + 1]; ++i) {
        std::memcpy(output + tile_.order[i] * tile_.output_stride, elements,
                    shape_.value_dim * sizeof(Element));
      }
    }
  }

  template <typename E>
  void RefineRows() {
    if (tile_.keys > Span(shape_)) return RefineRows<E, E>(tile_);
    // All keys and values are still here, side by side.
    CentroidTile packed = tile_;
    packed.key = scratch_.keys;
    packed.value = scratch_.values;
    packed.key_stride = shape_.head_dim;
    packed.value_stride = shape_.value_dim;
    RefineRows<E, Float32>(packed);
  }

  // K: the elements of the tile's keys and values.
  template <typename E, typename K>
  void RefineRows(const CentroidTile& tile) {
    Refine<V> refine(shape_, tile, softmax_, scratch_.refine);
    for (int64_t c = 0; c < tile.clusters; ++c) {
      if (c + 1 < tile.clusters) {
        refine.template Prefetch<K>(top_.entries(c + 1), top_.size(c + 1));
      }
      const float mass = JoinParts(c);
      refine.template Run<E, K>(c, top_.entries(c), top_.size(c), mass,
                                scratch_.rows + c * shape_.value_dim);
    }
  }

  // Brings the parts of centroid c's row that are outside its top keys to one scale and divides
  // them by all weights' sum. Returns the top keys' share of that.
  float JoinParts(int64_t c) {
    const uint64_t* const entries = top_.entries(c);
    const int64_t size = top_.size(c);
    const float lowest =
        scratch_.maxima[c] > scratch_.late_maxima[c] ? scratch_.maxima[c] : scratch_.late_maxima[c];
    float* const scores = scratch_.scores;
    const int64_t padded = (size + kLanes - 1) / kLanes * kLanes;
    for (int64_t n = 0; n < padded; ++n) {
      scores[n] = n < size ? softmax_.factor * Top::ScoreOf(entries[n]) : -__builtin_inff();
    }
    Vec greatest = V::Broadcast(lowest);
    for (int64_t n = 0; n < padded; n += kLanes) {
      greatest = V::Max(V::Load(scores + n), greatest);
    }
    float lanes[kLanes];
    V::Store(lanes, greatest);
    float maximum = lanes[0];
    for (float lane : lanes) maximum = lane > maximum ? lane : maximum;
    Vec top_sums = V::Zero();
    for (int64_t n = 0; n < padded; n += kLanes) {
      const Vec below = V::Subtract(V::Load(scores + n), V::Broadcast(maximum));
      top_sums =
          V::Add(top_sums, Exp2<V>(V::Multiply(below, V::Broadcast(softmax_.exponent_scale))));
    }
    V::Store(lanes, top_sums);
    float top_sum = 0;
    for (float lane : lanes) top_sum += lane;
    const float early_factor = softmax_.Weight(scratch_.maxima[c], maximum);
    const float late_factor = softmax_.Weight(scratch_.late_maxima[c], maximum);
    const float sum =
        scratch_.sums[c] * early_factor + scratch_.late_sums[c] * late_factor + top_sum;
    float* const row = scratch_.rows + c * shape_.value_dim;
    const float* const late = scratch_.late + c * shape_.value_dim;
    ForColumns(shape_.value_dim, [&](int64_t e, int64_t count) {
      const Vec early_part =
          V::Multiply(V::Broadcast(early_factor), Elements<V, Float32>::Load(row + e, count));
      const Vec part = V::MultiplyAdd(V::Broadcast(late_factor),
                                      Elements<V, Float32>::Load(late + e, count), early_part);
      Elements<V, Float32>::Store(row + e, V::Divide(part, V::Broadcast(sum)), count);
    });
    return top_sum / sum;
  }

  template <typename F>
  static void ForColumns(int64_t dim, F f) {
    for (int64_t e = 0; e < dim; e += kLanes) f(e, dim - e < kLanes ? dim - e : kLanes);
  }

  const CentroidShape& shape_;
  const CentroidTile& tile_;
  Scratch scratch_;
  const int64_t wanted_;  // top keys
  Top top_;
  const SoftmaxScale<V> softmax_;
  uint32_t hidden_[kTile / kLanes] = {};  // lanes that hold keys of the span, by vector

  // Left their heaps in this vector of lanes' turn, in order.
  struct Postponed {
    int64_t lane;
    uint64_t entry;
  };
  static constexpr int64_t kMostPostponed = 16;
  Postponed postponed_[kMostPostponed];
  int64_t postponed_count_ = 0;
};

}  // namespace castor::kernels
