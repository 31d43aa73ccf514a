// Attention of centroids for their members: the last stage of clusters.h, written once over the
// vectors of simd.h. Lanes hold centroids, as they hold queries in flash.inl.h, and keys are
// processed in spans with an online softmax.
//
// Improved clustered attention keeps each centroid's top keys (top_keys.inl.h) out of its sums.
// Keys that later turn out not to be top keys are added then (late_keys.inl.h). So the rest of the
// row is always a sum of its own terms and never a difference, even if the top keys have nearly all
// of the mass. If members weigh the rest by themselves, the same is summed over keys, and all of it
// for each group of keys; keys then come group after group.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/attention/late_keys.inl.h"
#include "engine/kernels/cpu/attention/positions.inl.h"
#include "engine/kernels/cpu/attention/softmax.inl.h"
#include "engine/kernels/cpu/clustered/clusters.h"
#include "engine/kernels/cpu/clustered/members.inl.h"
#include "engine/kernels/cpu/clustered/products.inl.h"
#include "engine/kernels/cpu/clustered/refine.inl.h"
#include "engine/kernels/cpu/clustered/top_keys.inl.h"
#include "engine/kernels/cpu/linear/panels.inl.h"
#include "engine/kernels/cpu/rows.inl.h"
#include "engine/kernels/cpu/scratch.inl.h"

namespace castor::kernels {

template <typename V>
class Centroids {
 public:
  static int64_t ScratchFloats(const CentroidShape& shape) {
    return Scratch(nullptr, shape).floats.value();
  }

  static bool Run(const CentroidShape& shape, const CentroidTile& tile, double operations,
                  CentroidProgress* progress, float* scratch) {
    Centroids centroids(shape, tile, operations, progress, scratch);
    return ForElement<V>(shape.element,
                         [&](auto element) { return centroids.template Run<decltype(element)>(); });
  }

 private:
  using Vec = typename V::Vec;
  using Panels = kernels::Panels<V>;
  using Top = TopKeys<V>;
  using Late = LateKeys<V>;
  using Stage = CentroidProgress::Stage;
  static constexpr int64_t kLanes = V::kLanes;

  // Operations without the products: of a member's row, and of a score.
  static constexpr double kMember = 50;
  static constexpr int64_t kScore = 32;

  // Sums over values are made of this many keys at a time, as in flash.inl.h.
  static constexpr int64_t kKeyBlock = 128;

  // Keys whose scores are in memory at a time: to find top keys, as many as the second-level cache
  // takes, because the first span's are selected at once.
  static int64_t Span(const CentroidShape& shape) {
    if (shape.topk == 0) return kKeyBlock;
    const int64_t span = (int64_t{1} << 17) / (Count(shape.head_dim) + shape.value_dim).value();
    if (span >= 1024) return 1024;
    return span < kKeyBlock ? kKeyBlock : span / kKeyBlock * kKeyBlock;
  }

  // Lanes of a tile.
  static int64_t Lanes(const CentroidShape& shape) { return Panels::RoundUp(shape.clusters); }

  // W is the width of the current panel.
  struct Scratch : ScratchArea<V> {
    Scratch(float* base, const CentroidShape& shape)
        : ScratchArea<V>(base),
          queries(this->Allocate(Count(Lanes(shape)) * shape.head_dim)),
          outputs(this->Allocate(Sums(shape) * shape.value_dim)),
          rows(this->Allocate(Sums(shape) * shape.value_dim)),
          maxima(this->Allocate(Sums(shape))),
          sums(this->Allocate(Sums(shape))),
          keys(this->Allocate(Count(Span(shape)) * shape.head_dim)),
          values(this->Allocate(Count(Span(shape)) * shape.value_dim)),
          biases(this->Allocate(shape.biased && shape.groups > 1 ? Span(shape) : 0)),
          scores(this->Allocate(Span(shape) * Panels::kMaxWidth)),
          decay(this->Allocate(2 * Panels::kMaxWidth)),
          means(this->Allocate(Count(Panels::kMaxWidth + 1) * shape.head_dim)),
          key_sums(this->Allocate(Count(shape.groups) * Lanes(shape) * shape.head_dim)),
          rest_keys(this->Allocate(Count(shape.groups) * Lanes(shape) * shape.head_dim)),
          late(this, shape.topk == 0 ? 0 : Lanes(shape), shape),
          top(this->Allocate(
              shape.topk == 0 ? 0 : Top::ScratchFloats(Lanes(shape), shape.topk, Span(shape)))),
          refine(this->Allocate(shape.topk == 0 ? 0 : Refine<V>::ScratchFloats(shape))) {}

    // Sums over keys: of each centroid, and for each group.
    static Count Sums(const CentroidShape& shape) { return Count(Lanes(shape)) * shape.sums(); }

    // [centroids, head_dim] the means, then panel after panel: [head_dim, W]; if members weigh the
    // rest, in the end as before.
    float* const queries;
    // Group after group, a tile's lanes each:
    float* const outputs;  // panel after panel: [value_dim, W], not yet divided by the sums
    float* const rows;     // [centroids, value_dim]: what members share, or a group's mean value
    float* const maxima;   // [lanes] of the scores so far; then the log-sum-exps that members
                           // share, or what a member's score with the mean key begins from
    float* const sums;     // [lanes] of the weights so far; then the top keys' share of them all,
                           // or as before
    float* const keys;     // [span, head_dim]
    float* const values;   // [span, value_dim]
    float* const biases;   // [span], if keys come in groups
    float* const scores;   // [span, W], then the weights
    float* const decay;    // [W], factors for earlier sums, by the span's new maxima; then [W] ones
    float* const means;    // [W, head_dim] of a panel, and a block's sum [head_dim]
    float* const key_sums;   // like outputs, over keys: [head_dim, W]
    float* const rest_keys;  // like rows: [centroids, head_dim], sums, then means
    const typename Late::Memory late;
    float* const top;
    float* const refine;
  };

  Centroids(const CentroidShape& shape, const CentroidTile& tile, double operations,
            CentroidProgress* progress, float* scratch)
      : shape_(shape),
        tile_(tile),
        lanes_(Lanes(shape)),
        left_(operations),
        progress_(*progress),
        scratch_(scratch, shape),
        members_(shape, tile),
        wanted_(shape.topk < tile.keys ? shape.topk : tile.keys),
        softmax_(shape.scale, shape.biased),
        mean_factor_(shape.biased ? softmax_.factor : 1),
        score_factor_(shape.biased ? 1 : softmax_.factor),
        // Rows of the paper's definition keep the order of their sums.
        top_(wanted_ == 0 ? nullptr : scratch_.top, lanes_, wanted_, Span(shape), shape.groups > 0),
        late_(shape, tile, softmax_, score_factor_, scratch_.late) {}

  // State that outlives a step is in the scratch area.
  template <typename E>
  bool Run() {
    if (progress_.stage == Stage::kMeans) {
      if (!Means<E>()) return true;
      Panels::For(tile_.clusters,
                  [&](auto vectors, int64_t lane) { LoadPanel<decltype(vectors)::N>(lane); });
      if (wanted_ != 0) {
        top_.Reset(Panels::RoundUp(tile_.clusters));
        late_.Reset(Panels::RoundUp(tile_.clusters));
      }
      progress_ = {Stage::kKeys};
    }
    if (progress_.stage == Stage::kKeys) {
      if (!Keys<E>()) return true;
      Panels::For(tile_.clusters,
                  [&](auto vectors, int64_t lane) { StorePanel<decltype(vectors)::N>(lane); });
      progress_ = {Stage::kRows};
    }
    return wanted_ == 0 ? !ShareRows<E>() : !RefineRows<E>();
  }

  // Calls f(c, from, to) for ranges of the clusters' members in order, until the step's operations
  // are used up. Returns true at the end. A member takes `operations`.
  template <typename F>
  bool ForMembers(double operations, F f) {
    // Whole blocks, of either part of the work.
    constexpr int64_t kUnit = 192;
    static_assert(kUnit % Members<V>::kBlock == 0 && kUnit % Refine<V>::kMembers == 0);
    const auto units = static_cast<int64_t>(left_ / operations / kUnit);
    const int64_t range = units > 1 ? units * kUnit : kUnit;
    for (; progress_.cluster < tile_.clusters; ++progress_.cluster, progress_.at = 0) {
      const int64_t c = progress_.cluster;
      const int64_t members = tile_.begin[c + 1] - tile_.begin[c];
      while (progress_.at < members) {
        if (left_ <= 0) return false;
        const int64_t from = progress_.at;
        const int64_t to = members - from < range ? members : from + range;
        f(c, from, to);
        left_ -= operations * static_cast<double>(to - from);
        progress_.at = to;
      }
    }
    return true;
  }

  template <typename E>
  bool Means() {
    const int64_t dim = shape_.head_dim;
    float* const block = scratch_.means + Panels::kMaxWidth * dim;
    return ForMembers(kMember + static_cast<double>(dim), [&](int64_t c, int64_t from, int64_t to) {
      members_.template Mean<E>(c, from, to, scratch_.queries + c * dim, block);
    });
  }

  template <typename E>
  bool Keys() {
    const int64_t span = Span(shape_);
    const double operations = 2.0 * static_cast<double>(tile_.clusters) *
                              static_cast<double>(shape_.head_dim + shape_.value_dim + kScore);
    for (; progress_.at < tile_.keys; progress_.at += span) {
      if (left_ <= 0) return false;
      const int64_t begin = progress_.at;
      const int64_t count = tile_.keys - begin < span ? tile_.keys - begin : span;
      LoadSpan<E>(tile_.key, tile_.key_stride, shape_.head_dim, begin, count, scratch_.keys);
      LoadSpan<E>(tile_.value, tile_.value_stride, shape_.value_dim, begin, count, scratch_.values);
      if (shape_.biased && tile_.key_order != nullptr) {
        for (int64_t j = 0; j < count; ++j) {
          scratch_.biases[j] = tile_.key_bias[tile_.Key(begin + j) * tile_.key_bias_stride];
        }
      }
      Panels::For(tile_.clusters, [&](auto vectors, int64_t lane) {
        AttendPanel<E, decltype(vectors)::N>(lane, begin, count);
      });
      left_ -= operations * static_cast<double>(count);
    }
    return true;
  }

  template <typename E>
  bool ShareRows() {
    return ForMembers(
        kMember + static_cast<double>(shape_.value_dim), [&](int64_t c, int64_t from, int64_t to) {
          members_.template WriteRow<E>(c, from, to, scratch_.rows + c * shape_.value_dim);
          if (tile_.log_sum_exp == nullptr) return;
          members_.WriteLog(c, from, to, softmax_.LogSum(scratch_.maxima[c], scratch_.sums[c]));
        });
  }

  template <typename E>
  void LoadSpan(const void* rows, int64_t stride, int64_t dim, int64_t begin, int64_t count,
                float* span) const {
    const auto* source = static_cast<const typename E::Bits*>(rows);
    const auto load = [&](auto row) {
      constexpr int64_t kAhead = 16;
      for (int64_t j = 0; j < count; ++j) {
        PrefetchRow<V>(row(j + kAhead < count ? j + kAhead : j), dim);
        LoadRow<V, E>(row(j), dim, span + j * dim);
      }
    };
    if (tile_.key_order == nullptr) {
      load([from = source + begin * stride, stride](int64_t j) { return from + j * stride; });
    } else {
      load([order = tile_.key_order + begin, source, stride](int64_t j) {
        return source + order[j] * stride;
      });
    }
  }

  // Transposes up to N vectors of means into the panel at `lane`, where they are, and resets its
  // state.
  template <int N>
  void LoadPanel(int64_t lane) {
    constexpr int64_t kWidth = N * kLanes;
    const int64_t dim = shape_.head_dim;
    const int64_t left = tile_.clusters - lane;
    const int64_t count = left < kWidth ? left : kWidth;
    std::memcpy(scratch_.means, scratch_.queries + lane * dim, count * dim * sizeof(float));
    Panels::template Load<N, Float32>([&](int64_t i) { return scratch_.means + i * dim; }, count,
                                      dim, mean_factor_, scratch_.queries + lane * dim);
    for (int64_t group = 0; group < tile_.groups; ++group) {
      const int64_t at = group * lanes_ + lane;
      std::memset(scratch_.outputs + at * shape_.value_dim, 0,
                  kWidth * shape_.value_dim * sizeof(float));
      if (shape_.groups > 0) {
        std::memset(scratch_.key_sums + at * dim, 0, kWidth * dim * sizeof(float));
      }
      for (int64_t i = at; i < at + kWidth; ++i) {
        scratch_.maxima[i] = -kLargestFloat;
        scratch_.sums[i] = 0;
      }
    }
  }

  template <typename E, int N>
  void AttendPanel(int64_t lane, int64_t begin, int64_t count) {
    constexpr int64_t kWidth = N * kLanes;
    Products<V>::template Scores<N>(scratch_.queries + lane * shape_.head_dim, scratch_.keys,
                                    shape_.head_dim, count, scratch_.scores);
    if (shape_.biased) {
      const bool ordered = tile_.key_order != nullptr;
      AddKeyBias<V, N>(ordered ? scratch_.biases : tile_.key_bias + begin * tile_.key_bias_stride,
                       ordered ? 1 : tile_.key_bias_stride, 1 / softmax_.magnitude, count,
                       scratch_.scores);
    }
    if (wanted_ != 0) {
      for (int v = 0; v < N; ++v) FindTop<E>(lane + v * kLanes, v * kLanes, kWidth, begin, count);
    }
    if (score_factor_ != 1) {
      // Hidden scores stay -Inf; otherwise the scale's sign would make them the greatest.
      const Vec factor = V::Broadcast(score_factor_);
      for (int64_t i = 0; i < count * kWidth; i += kLanes) {
        V::Store(scratch_.scores + i, factor * V::Load(scratch_.scores + i));
      }
    }
    if (wanted_ != 0) {
      for (int v = 0; v < N; ++v) HideTop(lane + v * kLanes, v * kLanes, kWidth, begin);
    }
    for (int64_t from = 0; from < count;) {
      const int64_t group = tile_.Group(begin + from);
      const int64_t left = (tile_.groups == 1 ? tile_.keys : tile_.group_end[group]) - begin;
      const int64_t to = left < count ? left : count;
      AddSpan<N>(group * lanes_ + lane, from, to);
      from = to;
    }
  }

  // Adds keys [from, to) of the span to the sums that begin at lane `at`.
  template <int N>
  void AddSpan(int64_t at, int64_t from, int64_t to) {
    constexpr int64_t kWidth = N * kLanes;
    OnlineSoftmax<V, N>(scratch_.scores + from * kWidth, to - from, softmax_.exponent_scale,
                        scratch_.maxima + at, scratch_.sums + at, scratch_.decay);
    for (int64_t j = from; j < to; j += kKeyBlock) {
      const int64_t keys = to - j < kKeyBlock ? to - j : kKeyBlock;
      const auto add = [&](const float* rows, int64_t dim, float* sums) {
        Products<V>::template AddValues<N>(scratch_.scores + j * kWidth, rows + j * dim, dim, keys,
                                           j == from ? scratch_.decay : Ones<N>(), sums + at * dim);
      };
      add(scratch_.values, shape_.value_dim, scratch_.outputs);
      if (shape_.groups > 0) add(scratch_.keys, shape_.head_dim, scratch_.key_sums);
    }
  }

  template <int N>
  const float* Ones() {
    float* const ones = scratch_.decay + Panels::kMaxWidth;
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
    if (begin == 0) return top_.AddFirstKeys(scores, count, width, lane, used);
    if (begin == Span(shape_)) top_.MakeHeaps(lane, used);
    top_.AddKeys(
        scores, begin, count, width, lane, used,
        [&](int64_t of, uint64_t entry) {
          // A key that came in this span is still among the scores.
          if (Top::KeyOf(entry) < begin) late_.template Postpone<E>(of, entry);
        },
        [&](int64_t of) { hidden_[lane / kLanes] |= uint32_t{1} << (of - lane); });
    late_.template AddWaiting<E>();
  }

  // Sets the weights of this span's top keys to zero.
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

  // Transposes a panel's outputs into rows, divided by their sums unless they wait for refinement;
  // if members weigh the rest, its sums over keys too, and its means back into theirs.
  template <int N>
  void StorePanel(int64_t lane) {
    const int64_t left = tile_.clusters - lane;
    const int64_t count = left < N * kLanes ? left : N * kLanes;
    const auto store = [&](const float* panel, int64_t dim, auto scale, float* rows) {
      Panels::template Store<N, Float32>(panel, count, dim, scale,
                                         [&](int64_t i) { return rows + i * dim; });
    };
    const auto same = [](int, Vec x) { return x; };
    const int64_t dim = shape_.head_dim;
    for (int64_t group = 0; group < tile_.groups; ++group) {
      const int64_t at = group * lanes_ + lane;
      // A sum is 1 at least, or 0 where all keys are hidden: then rows are zero.
      Vec sums[N];
      for (int v = 0; v < N; ++v) {
        sums[v] = V::Max(V::Broadcast(1.0f), V::Load(scratch_.sums + at + v * kLanes));
      }
      store(
          scratch_.outputs + at * shape_.value_dim, shape_.value_dim,
          [&](int v, Vec x) { return wanted_ != 0 ? x : (x / sums[v]); },
          scratch_.rows + at * shape_.value_dim);
      if (shape_.groups == 0) return;
      store(scratch_.key_sums + at * dim, dim, same, scratch_.rest_keys + at * dim);
    }
    store(scratch_.queries + lane * dim, dim, same, scratch_.means);
    std::memcpy(scratch_.queries + lane * dim, scratch_.means, count * dim * sizeof(float));
  }

  template <typename E>
  bool RefineRows() {
    if (tile_.keys > Span(shape_)) return RefineRows<E, E>(tile_);
    // All keys and values are still here, side by side.
    CentroidTile packed = tile_;
    packed.key = scratch_.keys;
    packed.value = scratch_.values;
    packed.key_stride = shape_.head_dim;
    packed.value_stride = shape_.value_dim;
    if (tile_.key_order != nullptr) {
      packed.key_order = nullptr;
      packed.key_bias = scratch_.biases;
      packed.key_bias_stride = 1;
    }
    return RefineRows<E, Float32>(packed);
  }

  // K: the elements of the tile's keys and values.
  template <typename E, typename K>
  bool RefineRows(const CentroidTile& tile) {
    Refine<V> refine(shape_, tile, softmax_, scratch_.refine);
    const double pair = 2.0 * static_cast<double>(shape_.head_dim + shape_.value_dim);
    const bool grouped = shape_.groups > 0;
    const int64_t keys = wanted_ + (grouped ? tile.groups : 0);
    return ForMembers(
        kMember + static_cast<double>(keys) * pair, [&](int64_t c, int64_t from, int64_t to) {
          float* const row = scratch_.rows + c * shape_.value_dim;
          if (from == 0) {
            if (c + 1 < tile.clusters) {
              refine.template Prefetch<K>(top_.entries(c + 1), top_.size(c + 1));
            }
            if (grouped) {
              for (int64_t g = 0; g < tile.groups; ++g) JoinRest(c, g * lanes_ + c);
            } else {
              float& maximum = scratch_.maxima[c];
              const auto joined = late_.Join(c, top_.entries(c), top_.size(c), maximum,
                                             scratch_.sums[c], row, nullptr);
              scratch_.sums[c] = joined.top_share;
              maximum = softmax_.LogSum(joined.maximum, joined.sum);
            }
          }
          typename Refine<V>::Rest rest = {.values = row, .masses = scratch_.sums + c};
          if (grouped) {
            rest.groups = tile.groups;
            rest.stride = lanes_;
            rest.keys = scratch_.rest_keys + c * shape_.head_dim;
            rest.scores = scratch_.maxima + c;
          } else if (tile_.log_sum_exp != nullptr) {
            members_.WriteLog(c, from, to, scratch_.maxima[c]);
          }
          refine.template Run<E, K>(c, from, to, top_.entries(c), top_.size(c), rest);
        });
  }

  // Completes the means of cluster c over a group's keys but its top keys; the group's sums lie at
  // lane `at`. Puts what members need in place of the sum and the maximum: the weights' sum, and
  // what a member's score with the mean key begins from, which is the maximum less the centroid's
  // score with that key.
  void JoinRest(int64_t c, int64_t at) {
    float& maximum = scratch_.maxima[at];
    float* const key = scratch_.rest_keys + at * shape_.head_dim;
    const auto rest = late_.Join(at, nullptr, 0, maximum, scratch_.sums[at],
                                 scratch_.rows + at * shape_.value_dim, key);
    scratch_.sums[at] = rest.sum;
    if (rest.sum == 0) {
      maximum = -__builtin_inff();  // and the mean key is zero
      return;
    }
    const float* const centroid = scratch_.queries + c * shape_.head_dim;
    float product = V::Sum(MultiplyRows<V>(centroid, key, shape_.head_dim));
    if (!(__builtin_fabsf(product) <= kLargestFloat)) {
      // Keys whose sums no float holds: members then weigh the rest as their centroid does.
      std::memset(key, 0, shape_.head_dim * sizeof(float));
      product = 0;
    }
    maximum = rest.maximum - score_factor_ * product;
  }

  const CentroidShape& shape_;
  const CentroidTile& tile_;
  const int64_t lanes_;
  double left_;  // operations of this step
  CentroidProgress& progress_;
  const Scratch scratch_;
  const Members<V> members_;
  const int64_t wanted_;  // top keys
  const SoftmaxScale<V> softmax_;
  // The softmax's factor is in the scores once top keys are found, or with biases, which are added
  // before, in the means.
  const float mean_factor_;
  const float score_factor_;
  Top top_;
  Late late_;
  uint32_t hidden_[kMostCentroids / kLanes] = {};  // lanes that hold keys of the span, by vector
};

}  // namespace castor::kernels
