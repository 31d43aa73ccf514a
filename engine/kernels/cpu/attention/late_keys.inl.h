// Keys that better ones replaced among a centroid's top keys. They belong to the rest of the
// centroid's row, but its sums have already passed them. A part of centroids.inl.h; a template over
// the vector type, for the reason given in flash.inl.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/kernels/cpu/attention/softmax.inl.h"
#include "engine/kernels/cpu/clustered/clusters.h"
#include "engine/kernels/cpu/clustered/top_keys.inl.h"
#include "engine/kernels/cpu/rows.inl.h"
#include "engine/kernels/cpu/scratch.inl.h"

namespace castor::kernels {

template <typename V>
class LateKeys {
 public:
  // Allocates the object's arrays in its kernel's scratch area, for `lanes` centroids and each
  // group of keys.
  struct Memory {
    Memory(ScratchArea<V>* area, int64_t lanes, const CentroidShape& shape) : lanes(lanes) {
      const Count all_sums = Count(lanes) * shape.sums();
      rows = area->Allocate(all_sums * shape.value_dim);
      keys = area->Allocate(Count(lanes) * shape.groups * shape.head_dim);
      maxima = area->Allocate(all_sums);
      sums = area->Allocate(all_sums);
      weights = area->Allocate((shape.topk + kLanes - 1) / kLanes * kLanes);
    }
    int64_t lanes;
    float* rows;     // [groups, lanes, value_dim]: sums of weights times values
    float* keys;     // [groups, lanes, head_dim]: the same of keys, if members weigh them
    float* maxima;   // [groups, lanes] of the scores
    float* sums;     // [groups, lanes] of the weights
    float* weights;  // [topk, to whole vectors] of one centroid's top keys
  };

  // `factor` is of top keys' scores, for those that the softmax takes.
  LateKeys(const CentroidShape& shape, const CentroidTile& tile, const SoftmaxScale<V>& softmax,
           float factor, const Memory& memory)
      : shape_(shape), tile_(tile), softmax_(softmax), factor_(factor), memory_(memory) {}

  void Reset(int64_t lanes) {
    for (int64_t group = 0; group < tile_.groups; ++group) {
      const int64_t at = group * memory_.lanes;
      const auto clear = [&](float* rows, int64_t dim) {
        std::memset(rows + at * dim, 0, lanes * dim * sizeof(float));
      };
      clear(memory_.rows, shape_.value_dim);
      if (shape_.groups > 0) clear(memory_.keys, shape_.head_dim);
      for (int64_t lane = at; lane < at + lanes; ++lane) {
        memory_.maxima[lane] = -kLargestFloat;
        memory_.sums[lane] = 0;
      }
    }
  }

  // Key `entry` is no longer a top key of centroid `lane`. Its value is prefetched here, and added
  // later.
  template <typename E>
  void Postpone(int64_t lane, uint64_t entry) {
    if (waiting_count_ == kMostWaiting) AddWaiting<E>();
    waiting_[waiting_count_++] = {lane, entry};
    PrefetchRow<V>(ValueOf<E>(entry), shape_.value_dim);
    if (shape_.groups > 0) PrefetchRow<V>(KeyOf<E>(entry), shape_.head_dim);
  }

  template <typename E>
  void AddWaiting() {
    for (int64_t n = 0; n < waiting_count_; ++n) Add<E>(waiting_[n].lane, waiting_[n].entry);
    waiting_count_ = 0;
  }

  // Completes a centroid's row outside its top keys, divided by the sum of all weights; `at` is its
  // place in `lanes`, or in [groups, lanes]. `row` holds the sum of weights times values over the
  // keys that never were top keys; `maximum` and `sum` are theirs. If members weigh the rest by
  // themselves, `key` holds the same sum over keys, and top keys are not counted. Returns the top
  // keys' share of all weights, the sum of all weights, 0 if there are none, and the maximum that
  // the sum is relative to.
  struct Joined {
    float top_share;
    float sum;
    float maximum;
  };
  Joined Join(int64_t at, const uint64_t* top, int64_t top_size, float maximum, float sum,
              float* row, float* key) {
    const float late_maximum = memory_.maxima[at];
    const float greatest =
        TopScores(top, top_size, maximum > late_maximum ? maximum : late_maximum);
    const float top_sum = TopWeights(top_size, greatest);
    const float factor = softmax_.Weight(maximum, greatest);
    const float late_factor = softmax_.Weight(late_maximum, greatest);
    const float total = sum * factor + memory_.sums[at] * late_factor + top_sum;
    if (total == 0) return {0, 0, greatest};  // all keys are hidden or top keys: rows of zeros
    const auto join = [&](int64_t dim, const float* late, float* early) {
      ForColumns<V>(dim, [&](int64_t e, int64_t count) {
        const Vec early_part = V::Broadcast(factor) * Elements<V, Float32>::Load(early + e, count);
        const Vec part = V::MultiplyAdd(V::Broadcast(late_factor),
                                        Elements<V, Float32>::Load(late + e, count), early_part);
        Elements<V, Float32>::Store(early + e, part / V::Broadcast(total), count);
      });
    };
    join(shape_.value_dim, memory_.rows + at * shape_.value_dim, row);
    if (shape_.groups > 0) join(shape_.head_dim, memory_.keys + at * shape_.head_dim, key);
    return {top_sum / total, total, greatest};
  }

 private:
  using Vec = typename V::Vec;
  using Top = TopKeys<V>;
  static constexpr int64_t kLanes = V::kLanes;

  struct Waiting {
    int64_t lane;
    uint64_t entry;
  };
  static constexpr int64_t kMostWaiting = 16;

  template <typename E>
  const typename E::Bits* ValueOf(uint64_t entry) const {
    return static_cast<const typename E::Bits*>(tile_.value) +
           tile_.Key(Top::KeyOf(entry)) * tile_.value_stride;
  }

  template <typename E>
  const typename E::Bits* KeyOf(uint64_t entry) const {
    return static_cast<const typename E::Bits*>(tile_.key) +
           tile_.Key(Top::KeyOf(entry)) * tile_.key_stride;
  }

  template <typename E>
  void Add(int64_t lane, uint64_t entry) {
    const float score = factor_ * Top::ScoreOf(entry);
    const int64_t at = tile_.Group(Top::KeyOf(entry)) * memory_.lanes + lane;
    float& maximum = memory_.maxima[at];
    float& sum = memory_.sums[at];
    float kept = 1;
    float weight = 1;
    if (score > maximum) {
      kept = softmax_.Weight(maximum, score);
      maximum = score;
    } else {
      weight = softmax_.Weight(score, maximum);
    }
    sum = kept * sum + weight;
    const auto add = [&](int64_t dim, const typename E::Bits* from, float* row) {
      ForColumns<V>(dim, [&](int64_t e, int64_t count) {
        const Vec before = Elements<V, Float32>::Load(row + e, count);
        const Vec after =
            V::MultiplyAdd(V::Broadcast(weight), Elements<V, E>::Load(from + e, count),
                           V::Broadcast(kept) * before);
        Elements<V, Float32>::Store(row + e, after, count);
      });
    };
    add(shape_.value_dim, ValueOf<E>(entry), memory_.rows + at * shape_.value_dim);
    if (shape_.groups > 0) {
      add(shape_.head_dim, KeyOf<E>(entry), memory_.keys + at * shape_.head_dim);
    }
  }

  // Writes the top keys' scores to `weights`; returns the greatest of them and of `least`.
  float TopScores(const uint64_t* top, int64_t size, float least) {
    float* const scores = memory_.weights;
    Vec greatest = V::Broadcast(least);
    for (int64_t n = 0; n < size; n += kLanes) {
      for (int64_t i = n; i < n + kLanes; ++i) {
        scores[i] = i < size ? factor_ * Top::ScoreOf(top[i]) : -__builtin_inff();
      }
      greatest = V::Max(V::Load(scores + n), greatest);
    }
    return V::Greatest(greatest);
  }

  // The sum of the weights that belong to the scores.
  float TopWeights(int64_t size, float maximum) const {
    const Vec scale = V::Broadcast(softmax_.exponent_scale);
    Vec sums = V::Zero();
    for (int64_t n = 0; n < size; n += kLanes) {
      const Vec below = V::Load(memory_.weights + n) - V::Broadcast(maximum);
      sums += Exp2<V>(below * scale);
    }
    return V::Sum(sums);
  }

  const CentroidShape& shape_;
  const CentroidTile& tile_;
  const SoftmaxScale<V>& softmax_;
  const float factor_;
  const Memory memory_;
  Waiting waiting_[kMostWaiting];
  int64_t waiting_count_ = 0;
};

}  // namespace castor::kernels
